package imagescan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/sanitize"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/report"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	*globals
	matchOptions
	inventoryOptions
	format string
}

func diffCommand(g *globals) *cobra.Command {
	o := &diffOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "diff SOURCE SOURCE",
		Short: "Compare two sources",
		Long: `diff scans two sources, such as two tags of a template, and prints the packages and vulnerabilities that
were added or removed in the second one.`,
		Example: `  imagescan diff registry_template:c0847bc9-5d2d-4dbc-ba6a-240f7ff08032:v1 \
    registry_template:c0847bc9-5d2d-4dbc-ba6a-240f7ff08032:v2
  imagescan diff vm_image:before.qcow2 vm_image:after.qcow2 -f json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.inventoryOptions.addFlags(cmd)
	o.matchOptions.addFlags(cmd)
	cmd.Flags().StringVarP(&o.format, "report-format", "f", string(report.Table), "report format: json or table")
	_ = cmd.RegisterFlagCompletionFunc("report-format",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *diffOptions) run(ctx context.Context, args []string) error {
	var sources [2]scan.Source
	for i, arg := range args {
		src, err := scan.ParseSource(arg)
		if err == nil && src.IsAllTemplates() {
			err = fmt.Errorf("%q: diff compares two sources: want a single template", arg)
		}
		if err != nil {
			return cli.Usage(err)
		}
		sources[i] = src
	}
	if f := report.Format(o.format); f != report.Table && f != report.JSON {
		return cli.Usage(fmt.Errorf("invalid report format %q: want table or json", o.format))
	}
	s, err := o.settings()
	if err == nil {
		err = o.compileExclude(s)
	}
	if err != nil {
		return cli.Usage(err)
	}
	if _, err := o.license(); err != nil {
		return err
	}
	for _, src := range sources {
		if err := o.checkSource(src); err != nil {
			return err
		}
	}
	j, err := o.newEvaluator(ctx, o.globals, s)
	if err != nil {
		return err
	}
	defer j.close()
	var reports [2]report.Report
	o.nameSource = true
	for i, src := range sources {
		err := o.catalogSources(ctx, o.globals, src, func(inv *scan.Inventory) error {
			r, err := j.report(ctx, o.globals, inv)
			reports[i] = r.Report
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := o.write(report.Diff(reports[0], reports[1])); err != nil {
		return err
	}
	for _, r := range reports {
		if err := incompleteError(r.Coverage); err != nil {
			return err
		}
	}
	return nil
}

func (o *diffOptions) write(d report.Difference) error {
	if report.Format(o.format) == report.JSON {
		return writeJSON(o.Out, d)
	}
	if o.quiet {
		return nil
	}
	return diffTable(o.Out, d)
}

// writeJSON prints a value; terminal control characters are escaped.
func writeJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return sanitize.EscapeJSON(w, text.Bytes())
}

// diffTable prints a difference: a plus for additions, a minus for removals.
func diffTable(w io.Writer, d report.Difference) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(sign string, p api.ScanPackage, more string) {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s%s\n", sign, cli.EscapeName(p.Type), cli.EscapeName(p.Name),
			cli.EscapeName(p.Version),
			more)
	}
	for _, part := range []struct {
		sign     string
		packages []api.ScanPackage
		matches  []api.ScanMatch
	}{{"-", d.RemovedPackages, d.RemovedMatches}, {"+", d.AddedPackages, d.AddedMatches}} {
		for _, p := range part.packages {
			row(part.sign, p, "")
		}
		for _, m := range part.matches {
			row(part.sign, m.Artifact, "\t"+cli.EscapeName(m.Vulnerability.ID)+"\t"+
				cli.EscapeName(m.Vulnerability.Severity))
		}
	}
	if len(d.AddedPackages)+len(d.RemovedPackages)+len(d.AddedMatches)+len(d.RemovedMatches) == 0 {
		_, _ = fmt.Fprintln(t, "No difference")
	}
	return t.Flush()
}
