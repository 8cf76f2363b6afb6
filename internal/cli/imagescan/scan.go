package imagescan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/report"
)

// scanOptions are the flags of a scan.
type scanOptions struct {
	*globals
	matchOptions
	inventoryOptions
	reportFile   string
	reportDest   *destination // of reportFile
	format       string
	templateFile string
	columns      string
	showPackages bool
	failOn       string
	attach       attachOptions
	controller   controllerOptions
}

func scanCommand(g *globals) *cobra.Command {
	o := &scanOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "imagescan type:source",
		Short: "Scan VM images, templates, container images and directories for vulnerabilities",
		Long: `imagescan reads disk and container images in place, catalogs their packages, and reports those with known
vulnerabilities. It mounts, unpacks and executes nothing and changes nothing.

  vm_image:<path>                     an image: raw, qcow2, VMDK, OVA, DMG; APFS, HFS+, ext4, XFS, Btrfs, with or
                                      without partitions, LVM and LUKS
  registry_template:<uuid>[:<tag>]    a template in a registry's storage (-s); default: the latest tag
  registry_template:*                 the latest tag of every template in the storage
  container:<path>[:<tag>|@<digest>]  a container image: OCI image layout (directory or tar archive), or an archive of
                                      "docker save"; --platform chooses one of several
  sbom:<path>                         a bill of materials: CycloneDX or SPDX in JSON
  dir:<path>                          a directory

Vulnerabilities come from a database that "imagescan db" builds or downloads. The report goes to
standard output, messages go to standard error.

` + cli.ExitCodes + `
Exit code 7: a part could not be read, or no advisories exist for packages (it is listed); 8: --fail-on matched a finding.`,
		Example: `  imagescan vm_image:debian.qcow2
  imagescan registry_template:c0847bc9-5d2d-4dbc-ba6a-240f7ff08032:v3 -s /mnt/registry --min-severity high
  imagescan container:app.tar:v2 --platform linux/arm64
  imagescan dir:/srv/app -q -f json > report.json
  imagescan vm_image:mac.img --fail-on critical,kev --baseline accepted.json`,
		Args:              cli.RefuseMisspelledCommand,
		ValidArgsFunction: o.completeSource,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.inventoryOptions.addFlags(cmd)
	o.matchOptions.addFlags(cmd)
	fs := cmd.Flags()
	fs.BoolVarP(&o.showPackages, "show-packages", "p", false, "list packages only, without matching")
	fs.StringVarP(&o.reportFile, "report-file", "o", "", "file for the report (default: standard output)")
	fs.StringVarP(&o.format, "report-format", "f", string(report.Table),
		"report format: json, table, sarif, cyclonedx, spdx, gitlab, junit or template (of --template)")
	fs.StringVar(&o.templateFile, "template", "",
		"file with the template of the report, in the language of Go's text/template")
	_ = cmd.MarkFlagFilename("template")
	fs.StringVar(&o.columns, "columns", "",
		"table columns: t type, n name, v version, V vulnerability, s score, S severity, l location, f fixed "+
			"versions, k known exploited, e EPSS, p distro-patched, r reachable (default tnvVsS)")
	fs.StringVar(&o.failOn, "fail-on",
		"",
		"exit with code 8 on findings of this severity, score, kev, unknown severity or reachable; comma-separated")
	fs.BoolVar(&o.allTags, "all-tags", false, "scan all tags of a template, or of every template, not only the latest")
	o.attach.addFlags(fs)
	o.controller.addFlags(fs)
	formats := make([]string, len(report.Formats))
	for i, f := range report.Formats {
		formats[i] = string(f)
	}
	_ = cmd.RegisterFlagCompletionFunc("report-format",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("fail-on",
		cobra.FixedCompletions([]string{"low", "medium", "high", "critical", "kev", "unknown", "reachable"},
			cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// scanPlan is the parsed request, checked before anything is opened.
type scanPlan struct {
	source   scan.Source
	format   report.Format
	template *template.Template // of the format template
	columns  []report.Column
	failOn   match.FailOn
}

func (o *scanOptions) plan(ctx context.Context, args []string) (p scanPlan, err error) {
	if len(args) != 1 {
		return p, fmt.Errorf("want one source: %s", scan.SourceForms)
	}
	if p.source, err = scan.ParseSource(args[0]); err != nil {
		return p, err
	}
	if p.format, err = report.ParseFormat(o.format); err != nil {
		return p, err
	}
	if p.template, err = report.LoadTemplate(ctx, p.format, o.templateFile); err != nil {
		return p, err
	}
	if o.columns != "" {
		if p.columns, err = report.ParseColumns(o.columns); err != nil {
			return p, err
		}
	}
	if o.failOn != "" {
		if p.failOn, err = match.ParseFailOn(o.failOn); err != nil {
			return p, fmt.Errorf("--fail-on: %w", err)
		}
	}
	return p, errors.Join(o.checkExclusive(p), o.attach.check(p.source, o.showPackages),
		o.controller.check(p.source, o.showPackages))
}

// checkExclusive returns an error for mutually exclusive options.
func (o *scanOptions) checkExclusive(p scanPlan) error {
	switch {
	case o.showPackages && o.failOn != "":
		return errors.New("--fail-on and --show-packages are mutually exclusive")
	case o.allTags && !p.source.HasManyTags():
		return errors.New("--all-tags requires a registry_template without a tag")
	case o.showPackages && !p.format.HasPackages():
		return fmt.Errorf("format %s has vulnerabilities only; want another format with --show-packages", p.format)
	case (p.source.IsAllTemplates() || o.allTags) && p.format.HasOneSource():
		return fmt.Errorf("format %s supports one source only; scan the templates one by one", p.format)
	}
	return nil
}

func (o *scanOptions) run(ctx context.Context, args []string) error {
	p, err := o.plan(ctx, args)
	if err != nil {
		return cli.Usage(err)
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
	log, closeLog, err := openLog(s.LogFile)
	if err != nil {
		return err
	}
	defer closeLog()
	if err := errors.Join(o.attach.openClient(o.globals), o.controller.openClient(o.globals)); err != nil {
		return err
	}
	if o.reportDest, err = o.destination(p, s); err != nil {
		return fmt.Errorf("report file: %w", err)
	}
	defer o.reportDest.close()
	began := time.Now()
	log.InfoContext(ctx, "scan started", "source", p.source.String(), "version", obs.FullVersion())
	found, err := o.scan(ctx, p, s)
	if err != nil {
		log.ErrorContext(ctx, "scan failed", "source", p.source.String(), "error", err.Error())
		return err
	}
	for _, f := range found {
		log.InfoContext(ctx, "scan finished", "source", f.Source.Type+":"+f.Source.Target, "packages", len(f.Packages),
			"matches", len(f.Matches), "partial", f.Coverage.Partial, "seconds", time.Since(began).Seconds())
	}
	if err := o.write(ctx, p, found); err != nil {
		return err
	}
	err = errors.Join(o.attach.attachAll(ctx, o.globals, found),
		o.controller.sendScanned(ctx, o.globals, &o.inventoryOptions, found))
	if err != nil {
		return err
	}
	return o.exitError(p, found)
}

// destination returns where the report goes; nil is standard output.
func (o *scanOptions) destination(p scanPlan, s settings) (*destination, error) {
	if o.reportFile == "" {
		return nil, nil
	}
	var err error
	if db, nowhere := o.databasePath(s); nowhere == nil { // later code reports the error
		err = checkNotInput(o.reportFile, db)
	}
	if name := p.source.Path(); err == nil && name != "" && p.source.Type != scan.Dir {
		err = checkNotInput(o.reportFile, name)
	}
	if err != nil {
		return nil, err
	}
	return openDestination(o.reportFile)
}

// scanResult is the report of one source, with the data for the exit status.
type scanResult struct {
	report.Report
	inventory  *scan.Inventory
	findings   []match.Finding
	unfiltered []match.Finding // with the rules of the configuration file alone
}

// scan catalogs the sources and matches their packages.
func (o *scanOptions) scan(ctx context.Context, p scanPlan, s settings) ([]scanResult, error) {
	if err := o.checkSource(p.source); err != nil {
		return nil, err
	}
	if o.showPackages {
		return o.evaluateAll(ctx, p, nil)
	}
	j, err := o.newEvaluator(ctx, o.globals, s)
	if err != nil {
		return nil, err
	}
	defer j.close()
	return o.evaluateAll(ctx, p, j)
}

// evaluateAll reports on every selected source; j is nil when packages are only listed.
func (o *scanOptions) evaluateAll(ctx context.Context, p scanPlan, j *evaluator) ([]scanResult, error) {
	var out []scanResult
	err := o.catalogSources(ctx, o.globals, p.source, func(inv *scan.Inventory) error {
		r, err := j.report(ctx, o.globals, inv)
		if err == nil {
			out = append(out, r)
		}
		return err
	})
	return out, err
}

// write writes the reports to their destinations.
func (o *scanOptions) write(ctx context.Context, p scanPlan, found []scanResult) (err error) {
	reports := make([]report.Report, len(found))
	for i, r := range found {
		reports[i] = r.Report
	}
	ro := report.Options{
		Columns: p.columns, Tool: "imagescan", Version: obs.FullVersion(), Now: time.Now(),
		WholeRegistry: p.source.IsAllTemplates() || o.allTags, Template: p.template, Stop: ctx.Err,
	}
	if o.reportFile == "" {
		if o.quiet && p.format == report.Table {
			return nil
		}
		return report.Write(o.Out, p.format, reports, ro)
	}
	var text strings.Builder
	if err := report.Write(&text, p.format, reports, ro); err != nil {
		return err
	}
	if err := o.reportDest.write(ctx, text.String()); err != nil {
		return fmt.Errorf("report file: %w", err)
	}
	if !o.quiet {
		_, err = fmt.Fprintf(o.Out, "Report written to %s\n", cli.EscapeName(o.reportFile))
	}
	return err
}

// exitError returns the exit status: findings of --fail-on precede unreadable parts.
func (o *scanOptions) exitError(p scanPlan, found []scanResult) error {
	bad, maybe, unknown, unread := 0, 0, 0, 0
	var partial error
	for _, r := range found {
		bad += len(p.failOn.Fails(r.findings))
		maybe += p.failOn.MayBePatched(r.findings)
		unknown += p.failOn.Unknowns(r.findings)
		unread += p.failOn.UnknownReachability(r.findings)
		if partial == nil {
			partial = incompleteError(r.Coverage)
		}
	}
	if maybe > 0 {
		o.printMessage("%s not counted for --fail-on: %s", cli.Plural(maybe, "vulnerability"), mayBePatchedReason)
	}
	if unknown > 0 {
		o.printMessage("%s not counted for --fail-on: the severity is unknown (--fail-on unknown counts them)",
			cli.Plural(unknown, "vulnerability"))
	}
	if unread > 0 {
		o.printMessage("%s of Go modules not counted for --fail-on: whether a program has the vulnerable code is "+
			"unknown", cli.Plural(unread, "vulnerability"))
	}
	if bad > 0 {
		err := fmt.Errorf("%s %s at or above --fail-on %s", cli.Plural(bad, "vulnerability"),
			map[bool]string{true: "is", false: "are"}[bad == 1], o.failOn)
		return cli.Exit(cli.ExitFound, errors.Join(err, partial))
	}
	return partial
}

// mayBePatchedReason is why some findings do not fail a build.
const mayBePatchedReason = "the distribution of the package may have patched it (distro-patched: unknown)"

// incompleteError returns the error of an incomplete scan; nil for a complete one.
func incompleteError(c api.ScanCoverage) error {
	if !c.Partial {
		return nil
	}
	var none error
	if n := c.NoAdvisories; len(n) > 0 {
		text := cli.EscapeName(n[0].Message)
		if len(n) > 1 {
			text += fmt.Sprintf(", and %d more", len(n)-1)
		}
		none = fmt.Errorf("scan partial: %s; add the advisories to the database", text)
	}
	what, more := "", c.Unreads
	for _, s := range c.Skipped {
		if s.Partial {
			what, more = prefixSubject(s.Name, s.Reason), more+1
		}
	}
	if what == "" && len(c.Unread) > 0 {
		what = c.Unread[0].Path + ": " + c.Unread[0].Reason
	}
	if what == "" && none != nil {
		return cli.Exit(cli.ExitPartly, none)
	}
	if more > 1 {
		what += fmt.Sprintf(", and %d more", more-1)
	}
	err := fmt.Errorf("scan partial: files that may contain packages could not be read: %s", cli.EscapeName(what))
	return cli.Exit(cli.ExitPartly, errors.Join(err, none))
}

// maxNamedFiles limits the files of each list in a report.
const maxNamedFiles = 100

// toCoverage describes what a scan could and could not read.
func toCoverage(inv *scan.Inventory) api.ScanCoverage {
	c := api.ScanCoverage{
		Partial: inv.Partial(), Volumes: []api.ScanVolume{}, Skipped: []api.ScanSkipped{},
		Unread: []api.ScanUnreadable{}, Odd: []api.ScanUnreadable{}, Unreads: inv.Unreadable, Hidden: map[string]int{},
		Excluded: inv.Excluded, Development: inv.LeftOut,
	}
	for _, v := range inv.Volumes {
		c.Volumes = append(c.Volumes,
			api.ScanVolume{
				Name: v.Name, Role: v.Role, Format: v.Format, Mount: v.MountPath, Files: int64(v.Files),
				Packages: v.Packages, Notes: v.Notes,
			})
	}
	for _, s := range inv.Skipped {
		c.Skipped = append(c.Skipped, api.ScanSkipped{Name: s.Name, Reason: s.Reason, Partial: s.MayHavePackages})
	}
	for _, w := range inv.Warnings {
		list := &c.Unread
		if w.InvalidContent {
			c.Odds++
			list = &c.Odd
		}
		if len(*list) < maxNamedFiles {
			*list = append(*list, api.ScanUnreadable{Path: w.Path, Reason: w.Message})
		}
	}
	return c
}
