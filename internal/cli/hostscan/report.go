package hostscan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/report"
)

// reportSection is a section of a report.
type reportSection string

const (
	allSections            reportSection = ""
	packagesSection        reportSection = "/packages"
	vulnerabilitiesSection reportSection = "/vulnerabilities"
)

// reportOptions are the flags of a report.
type reportOptions struct {
	*globals
	section   reportSection
	format    string
	template  string // file
	timestamp string
	sinceJob  string
	minScore  float32
	sort      string
	columns   string
	failOn    string
}

func reportCommand(g *globals) *cobra.Command {
	root := addSectionFlags(g, allSections, &cobra.Command{
		Use:   "report",
		Short: "Report packages and vulnerabilities",
		Long: `report prints the packages and vulnerabilities that the service has found since the last start of a scan,
or since --timestamp: packages that were cataloged since then, and vulnerabilities that became known
since then, also of older packages when a newer database knows more.

With --since-job it has what came since "hostscan mark JOB": packages that are new on this host or in new
files, and their vulnerabilities. It waits until earlier changes are cataloged. The exit code is 7 when it
may be incomplete; without --since-job it is 0 then.`,
		Example: `  hostscan report
  hostscan report --timestamp 2026-01-31T12:00:00Z --report-format json
  hostscan report --fail-on high,kev
  hostscan report --since-job "$CI_JOB_ID" --fail-on high,kev
  hostscan report -f sarif > hostscan.sarif`,
	})
	root.AddCommand(
		addSectionFlags(g, packagesSection, &cobra.Command{
			Use:   "packages",
			Short: "Report packages",
			Example: `  hostscan report packages --sort name
  hostscan report packages --min-score 9 --columns nvl`,
		}),
		addSectionFlags(g, vulnerabilitiesSection, &cobra.Command{
			Use:   "vulnerabilities",
			Short: "Report vulnerabilities",
			Example: `  hostscan report vulnerabilities --min-score 7 --sort score
  hostscan report vulnerabilities -c nvVsl`,
		}),
		resetCommand(g))
	return root
}

// addSectionFlags adds the flags of a report section to a command.
func addSectionFlags(g *globals, of reportSection, cmd *cobra.Command) *cobra.Command {
	o := &reportOptions{globals: g, section: of}
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("since-job") && o.sinceJob == "" { // a variable that is not set
			return cli.Usage(errors.New("--since-job is empty: want the name of a job that was marked"))
		}
		return o.run(cmd.Context())
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.format, "report-format", "f", string(report.Table),
		"report format: table, json, sarif, cyclonedx, spdx, gitlab, junit or template (of --template)")
	fs.StringVar(&o.template, "template", "",
		"file with the template of the report, in the language of Go's text/template")
	_ = cmd.MarkFlagFilename("template")
	fs.StringVarP(&o.timestamp, "timestamp", "t",
		"", "show what was found since this RFC 3339 time (default: the last start of a scan)")
	fs.StringVar(&o.sinceJob, "since-job", "", "show what came since \"hostscan mark\" of this job")
	cmd.MarkFlagsMutuallyExclusive("since-job", "timestamp")
	fs.Float32VarP(&o.minScore, "min-score", "m", 0, "minimum score of vulnerabilities, and of packages with one")
	fs.StringVarP(&o.sort, "sort", "s", "", "table order: score (s, highest first), name (n) or type (t)")
	fs.StringVarP(&o.columns, "columns", "c", "",
		"table columns: t type, n name, v version, V vulnerability, s score, S severity, l location, f fixed "+
			"versions, k known exploited, e EPSS, p distro-patched (default tnvVsS)")
	complete := func(flag string, values ...string) {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("report-format", "table", "json", "sarif", "cyclonedx", "spdx", "gitlab", "junit", "template")
	complete("sort", "score", "name", "type")
	complete("columns", "tnv", "tnvl", "tnvVsS", "tnvVsSl")
	complete("timestamp")
	complete("since-job")
	complete("min-score")
	if of != packagesSection {
		fs.StringVar(&o.failOn, "fail-on", "",
			"exit with code 8 on findings of this severity (low to critical), score, kev or unknown severity; "+
				"comma-separated")
		complete("fail-on", "low", "medium", "high", "critical", "kev", "unknown")
	}
	return cmd
}

func resetCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Clear the report",
		Long: `reset removes all packages and vulnerabilities from the report, and does not change the scan state.
Installed packages are reported again after a full scan or when they change.`,
		Example: `  hostscan report reset`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.client()
			if err != nil {
				return err
			}
			state, err := g.postChange(cmd.Context(), a, "/v1/report/reset", nil)
			if err != nil {
				return err
			}
			return g.printState(state)
		},
	}
}

// reportPlan is the parsed request, checked before the service is called.
type reportPlan struct {
	format   report.Format
	template *template.Template // of the format template
	columns  []report.Column
	order    sortOrder
	since    time.Time
	query    url.Values
	failOn   match.FailOn
}

func (o *reportOptions) plan(ctx context.Context) (p reportPlan, err error) {
	p.query = url.Values{}
	if p.format, err = report.ParseFormat(o.format); err != nil {
		return p, err
	}
	if p.template, err = report.LoadTemplate(ctx, p.format, o.template); err != nil {
		return p, err
	}
	if !p.format.HasPackages() && o.section == packagesSection {
		return p, fmt.Errorf(
			"report format %s has vulnerabilities only; want cyclonedx, spdx, json, table or template for packages",
			p.format)
	}
	if o.columns != "" {
		if p.columns, err = report.ParseColumns(o.columns); err != nil {
			return p, fmt.Errorf("--columns: %w", err)
		}
	}
	if p.order, err = parseOrder(o.sort); err != nil {
		return p, err
	}
	if o.minScore < 0 || o.minScore > 10 || math.IsNaN(float64(o.minScore)) {
		return p, fmt.Errorf("invalid --min-score %v: want 0 to 10", o.minScore)
	}
	if o.minScore > 0 {
		p.query.Set("min_score", strconv.FormatFloat(cli.Decimal(o.minScore), 'f', -1, 64))
	}
	if o.timestamp != "" {
		if p.since, err = time.Parse(time.RFC3339, strings.ToUpper(o.timestamp)); err != nil {
			return p, fmt.Errorf("invalid --timestamp %q: want an RFC 3339 time such as 2026-01-31T15:04:05Z",
				o.timestamp)
		}
	}
	if o.failOn != "" {
		if p.failOn, err = match.ParseFailOn(o.failOn); err != nil {
			err = fmt.Errorf("--fail-on: %w", err)
		}
		if err == nil && p.failOn.Reachable {
			err = errors.New("--fail-on reachable: only imagescan reads which functions a program has")
		}
	}
	return p, err
}

func (o *reportOptions) run(ctx context.Context) error {
	p, err := o.plan(ctx)
	if err != nil {
		return cli.Usage(err)
	}
	a, err := o.client()
	if err != nil {
		return err
	}
	status, err := a.status(ctx)
	if err != nil {
		return err
	}
	if err := o.narrow(ctx, a, p, status); err != nil {
		return err
	}
	found, err := o.fetch(ctx, a, p)
	if err != nil {
		return err
	}
	var gaps []string
	if o.sinceJob != "" { // the report has waited for changes
		m, err := a.findMark(ctx, o.sinceJob)
		if err != nil {
			return err
		}
		status.NoAdvisories, status.LastScan = m.Unevaluated, nil
		if m.Incomplete != "" {
			gaps = append(gaps, m.Incomplete)
			status.LastScan = &api.HostScanResult{Error: m.Incomplete}
		}
	}
	if o.section != packagesSection {
		gaps = append(gaps, status.NoAdvisories...)
	}
	for _, text := range gaps {
		o.printMessage("Incomplete: %s", text)
	}
	if err := o.write(ctx, p, found, status); err != nil {
		return err
	}
	if err := o.exitError(p, found); err != nil || o.sinceJob == "" || len(gaps) == 0 {
		return err
	}
	return cli.Exit(cli.ExitPartly, errors.New("the report since the job may be incomplete"))
}

// narrow sets what the report begins with.
func (o *reportOptions) narrow(ctx context.Context, a *serviceClient, p reportPlan, status api.HostStatus) error {
	if o.sinceJob != "" {
		p.query.Set("since_job", o.sinceJob)
		_, err := a.findMark(ctx, o.sinceJob)
		return err
	}
	since := p.since
	if since.IsZero() && status.Since != nil {
		since = *status.Since
	}
	if !since.IsZero() {
		p.query.Set("fromTime", since.Format(time.RFC3339Nano))
	}
	return nil
}

// fetch requests the needed data: to sort packages by score, their vulnerabilities too.
func (o *reportOptions) fetch(ctx context.Context, a *serviceClient, p reportPlan) (r api.HostReport, err error) {
	switch {
	case o.section == vulnerabilitiesSection:
		err = a.get(ctx, "/v1/report/vulnerabilities", p.query, &r.Vulnerabilities)
	case o.section == packagesSection && (p.order != byScore || p.format != report.Table):
		err = a.get(ctx, "/v1/report/packages", p.query, &r.Packages)
	default:
		err = a.get(ctx, "/v1/report", p.query, &r)
	}
	return r, err
}

// write writes a report to standard output.
func (o *reportOptions) write(ctx context.Context, p reportPlan, r api.HostReport, status api.HostStatus) error {
	if o.sort != "" && p.format != report.Table {
		o.printMessage("Note: --sort applies to tables only")
	}
	switch p.format {
	case report.Table:
		return o.writeTables(p, r)
	case report.JSON:
		return o.writeJSON(r)
	}
	doc := o.toReport(r, status)
	return report.Write(o.Out, p.format, []report.Report{doc}, report.Options{
		Tool: "hostscan", Version: obs.FullVersion(), Now: time.Now(), Template: p.template, Stop: ctx.Err,
	})
}

// exitError returns the exit status.
func (o *reportOptions) exitError(p reportPlan, r api.HostReport) error {
	if o.failOn == "" {
		return nil
	}
	all := toFindings(r.Vulnerabilities)
	if n := p.failOn.MayBePatched(all); n > 0 {
		o.printMessage("%s not counted for --fail-on: the distribution of the package may have patched it "+
			"(distro-patched: unknown)", cli.Plural(n, "vulnerability"))
	}
	bad := len(p.failOn.Fails(all))
	if bad == 0 {
		return nil
	}
	are := map[bool]string{true: "is", false: "are"}[bad == 1]
	return cli.Exit(cli.ExitFound,
		fmt.Errorf("%s %s at or above --fail-on %s", cli.Plural(bad, "vulnerability"), are, o.failOn))
}

// sortOrder is how a table is sorted.
type sortOrder byte

// The orders; the zero value is the order of discovery.
const (
	byScore sortOrder = 's'
	byName  sortOrder = 'n'
	byType  sortOrder = 't'
)

var sortOrders = map[string]sortOrder{
	"": 0, "score": byScore, "s": byScore, "name": byName, "n": byName, "type": byType, "t": byType,
}

func parseOrder(name string) (sortOrder, error) {
	o, ok := sortOrders[name]
	if !ok {
		return 0, fmt.Errorf("invalid --sort %q: want score (s), name (n) or type (t)", name)
	}
	return o, nil
}

// compare compares two entries by an order, and by name, version and ID where it is equal.
func (o sortOrder) compare(a, b api.ScanMatch) int {
	x, y := a.Artifact, b.Artifact
	first := 0
	switch o {
	case byScore:
		first = cmp.Compare(b.Vulnerability.BaseScore, a.Vulnerability.BaseScore)
	case byType:
		first = cmp.Compare(x.Type, y.Type)
	}
	return cmp.Or(first, cmp.Compare(x.Name, y.Name), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Version, y.Version),
		cmp.Compare(a.Vulnerability.ID, b.Vulnerability.ID))
}
