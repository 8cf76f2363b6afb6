package imagescan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
	"github.com/buildyard/buildyard/internal/scan/match/vex"
	"github.com/buildyard/buildyard/internal/scan/reach"
	"github.com/buildyard/buildyard/internal/scan/report"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

// matchOptions are the flags that select findings.
type matchOptions struct {
	noUpdate     bool
	maxAge       time.Duration
	minScore     float32
	minSeverity  string
	onlyFixed    bool
	vexPaths     []string
	baselinePath string
}

func (o *matchOptions) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&o.noUpdate, "disable-db-update", "u", false, "do not update the vulnerability database automatically")
	fs.Float32Var(&o.minScore, "min-score", 0, "minimum score of reported vulnerabilities")
	fs.StringVar(&o.minSeverity, "min-severity", "",
		"minimum severity of reported vulnerabilities: low, medium, high or critical")
	fs.BoolVar(&o.onlyFixed, "only-fixed", false,
		"report only vulnerabilities for which an advisory names a fixed version")
	fs.DurationVar(&o.maxAge, "max-db-age",
		0, "maximum age of the vulnerability database, such as 120h (default: unlimited)")
	fs.StringArrayVar(&o.vexPaths, "vex", nil,
		"OpenVEX or CycloneDX file whose not affected and fixed statements suppress findings; repeatable")
	fs.StringVar(&o.baselinePath, "baseline", "",
		"JSON report of an earlier scan (baseline); its findings are suppressed")
	_ = cmd.RegisterFlagCompletionFunc("min-severity",
		cobra.FixedCompletions([]string{"low", "medium", "high", "critical"}, cobra.ShellCompDirectiveNoFileComp))
}

// rules combines the rules of the flags and of the configuration.
func (o *matchOptions) rules(ctx context.Context, s settings) (r match.Rules, err error) {
	r = s.matchRules()
	r.MinScore, r.OnlyFixed = cli.Decimal(o.minScore), o.onlyFixed
	if !(o.minScore >= 0 && o.minScore <= 10) { // also rejects NaN
		return r, cli.Usage(fmt.Errorf("invalid --min-score %v: want 0 to 10", o.minScore))
	}
	if o.minSeverity != "" {
		if r.MinSeverity, err = match.ParseSeverity(o.minSeverity); err != nil {
			return r, cli.Usage(fmt.Errorf("--min-severity: %w", err))
		}
	}
	if len(o.vexPaths) > 0 {
		if r.VEX, err = vex.Load(ctx, o.vexPaths...); err != nil {
			return r, err
		}
	}
	if o.baselinePath == "" {
		return r, nil
	}
	f, err := input.Open(ctx, o.baselinePath)
	if err != nil {
		return r, fmt.Errorf("--baseline %s: %w", o.baselinePath, err)
	}
	defer f.Close()
	if r.Baseline, err = match.ReadBaseline(f); err != nil {
		err = fmt.Errorf("--baseline %s: %w", o.baselinePath, err)
	}
	return r, err
}

// matchRules returns the rules of the configuration file.
func (s settings) matchRules() match.Rules {
	r := match.Rules{IgnoredPackages: s.IgnorePackages, IgnoredCVEs: s.IgnoreCVEs}
	if rules := s.ignoreRules(); rules != nil { // an interface that holds a nil pointer is not nil
		r.Ignore = rules
	}
	return r
}

// evaluator matches inventories against a database.
type evaluator struct {
	db      *vulndb.DB
	rules   match.Rules
	ignored *ignore.Rules // of the configuration file; nil: none
	// configured are the rules of the configuration file alone; nil: there are no others.
	configured *match.Rules
}

// newEvaluator updates and opens the database of a scan.
func (o *matchOptions) newEvaluator(ctx context.Context, g *globals, s settings) (*evaluator, error) {
	rules, err := o.rules(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := rules.Check(); err != nil {
		return nil, cli.Usage(fmt.Errorf("read configuration file %s: %w", g.configPath, err))
	}
	db, err := o.openDatabase(ctx, g, s)
	if err != nil {
		return nil, err
	}
	ignored := s.ignoreRules()
	for _, w := range ignored.Warnings() {
		g.printMessage("Warning: %s", w)
	}
	j := &evaluator{db: db, rules: rules, ignored: ignored}
	if o.minScore > 0 || o.minSeverity != "" || len(o.vexPaths) > 0 || o.baselinePath != "" || o.onlyFixed {
		configured := s.matchRules()
		j.configured = &configured
	}
	return j, nil
}

// openDatabase opens the database.
func (o *matchOptions) openDatabase(ctx context.Context, g *globals, s settings) (*vulndb.DB, error) {
	if o.maxAge < 0 {
		return nil, cli.Usage(errors.New("invalid --max-db-age: want 0 or more"))
	}
	path, err := g.databasePath(s)
	if err != nil {
		return nil, err
	}
	if !o.noUpdate {
		g.autoUpdate(ctx, path, s)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	db, err := vulndb.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil,
			fmt.Errorf(
				"vulnerability database %s not found; build it with \"imagescan db build\", import it with "+
					"\"imagescan db import\", or set db-update-url in a configuration file and run \"imagescan db "+
					"update\"", path)
	}
	if err != nil {
		return nil, withAdvice(err)
	}
	if err := g.verifyDatabase(path, s); err != nil {
		_ = db.Close()
		return nil, err
	}
	built := db.Info().Built
	if age := time.Since(built); o.maxAge > 0 && age > o.maxAge {
		_ = db.Close()
		return nil,
			fmt.Errorf("vulnerability database is %s old (built %s), --max-db-age is %s; run \"imagescan db update\"",
				cli.FormatAge(age), built.UTC().Format(time.DateOnly), cli.FormatAge(o.maxAge))
	}
	return db, nil
}

// verifyDatabase rejects a database without a required signature.
func (g *globals) verifyDatabase(path string, s settings) error {
	o, err := g.updateOptions(path, s, nil)
	if err == nil {
		err = update.Verify(path, o.Key)
	}
	if errors.Is(err, update.ErrInvalidSignature) {
		advice := "import a signed bundle, or set db-update-url"
		if s.DBUpdateURL != "" {
			advice = "run \"imagescan db update\", or import a signed bundle"
		}
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// withAdvice adds advice to the error of a damaged database.
func withAdvice(err error) error {
	if errors.Is(err, vulndb.ErrDamaged) {
		err = fmt.Errorf("%w; remove it, and build, import or update it again (imagescan db)", err)
	}
	return err
}

func (j *evaluator) close() { _ = j.db.Close() }

// report matches an inventory. A nil evaluator only lists its packages.
func (j *evaluator) report(ctx context.Context, g *globals, inv *scan.Inventory) (scanResult, error) {
	r := scanResult{inventory: inv, Report: report.Report{
		Source:   toSource(inv),
		Packages: report.Packages(inv.Packages),
		Coverage: toCoverage(inv), OnlyPackages: j == nil,
	}}
	if j == nil {
		return r, nil
	}
	res, err := match.Match(ctx, j.db, inv.Packages, match.Options{Rules: j.rules})
	if err != nil {
		return r, withAdvice(err)
	}
	unread, err := reach.Resolve(ctx, j.db, res.Findings, func() (reach.Files, error) { return inv.OpenFiles(ctx) })
	if err != nil {
		return r, withAdvice(err)
	}
	r.findings, r.Matches = res.Findings, report.Matches(res.Findings)
	if err := j.describe(r.Matches); err != nil {
		return r, err
	}
	if r.unfiltered = res.Findings; j.configured != nil && inv.ID != "" {
		all, err := match.Match(ctx, j.db, inv.Packages, match.Options{Rules: *j.configured})
		if err != nil {
			return r, withAdvice(err)
		}
		r.unfiltered = all.Findings
	}
	info := j.db.Info()
	c := &r.Coverage
	c.Database = toScanDatabase(info)
	c.Hidden, c.Unknown = suppressedCounts(res.Suppressed), res.UnknownScores
	c.Unjudged, c.Unjudgeds = toNotEvaluated(res.NotEvaluated), len(res.NotEvaluated)
	c.NoAdvisories = toNoAdvisories(res.NoAdvisories)
	c.Partial = c.Partial || len(c.NoAdvisories) > 0
	g.printMessage("Analyzed packages: %d [vulnerabilities: %d]", len(inv.Packages), len(res.Findings))
	g.printMessage("%s", coverageLine(c, res.Suppressed.Total()))
	printReachable(g, res.Findings, unread)
	c.Ignored = toIgnored(j.ignored, res.IgnoredByRule)
	for i, r := range c.Ignored {
		if r.Count > 0 {
			g.printMessage("Ignored by rule %d (%s): %s", i+1, j.ignored.List()[i], cli.Plural(r.Count, "finding"))
		}
	}
	return r, nil
}

// printReachable counts the vulnerabilities by whether programs have the vulnerable code, and names the first programs
// that could not be read.
func printReachable(g *globals, findings []match.Finding, unread []reach.Unread) {
	counts := map[match.Reachability]int{}
	for i := range findings {
		counts[findings[i].Reachability()]++
	}
	if counts[match.Linked]+counts[match.NotLinked] > 0 {
		g.printMessage("Vulnerabilities of Go modules: %d linked, %d not linked, %d unknown", counts[match.Linked],
			counts[match.NotLinked], counts[match.LinkUnknown])
	}
	const most = 5
	for _, u := range unread[:min(len(unread), most)] {
		g.printMessage("Note: the functions of %s could not be read: %v", u.Location, u.Err)
	}
	if more := len(unread) - most; more > 0 {
		g.printMessage("Note: the functions of %d more programs could not be read", more)
	}
}

// toSource names what was scanned; of a template also the version.
func toSource(inv *scan.Inventory) api.ScanSource {
	return api.ScanSource{
		Type: string(inv.Source.Type), Target: inv.Source.Target,
		Template: inv.Name, TemplateID: inv.ID, Tag: inv.Tag, ContentID: inv.ContentID,
		Image: inv.Container.Ref, Digest: inv.Container.Digest, Platform: inv.Container.Platform,
	}
}

// describe adds what the database has for people to read.
func (j *evaluator) describe(matches []api.ScanMatch) error {
	known := map[string]vulndb.Description{}
	for i := range matches {
		v := &matches[i].Vulnerability
		d, ok := known[v.ID]
		if !ok {
			var err error
			if d, _, err = j.db.Description(v.ID); err != nil {
				return withAdvice(err)
			}
			known[v.ID] = d
		}
		v.Title, v.Description, v.References = d.Title, d.Text, d.References
	}
	return nil
}

// suppressedCounts returns the number of suppressed matches by reason.
func suppressedCounts(h match.Suppressed) map[string]int {
	out := map[string]int{}
	for reason, n := range map[string]int{
		"ignored-packages": h.Packages, "ignored-cves": h.CVEs, "vex": h.VEX, "baseline": h.Baseline,
		"minimum": h.BelowMinimum, "unknown-score": h.UnknownScore, "ignore-rules": h.IgnoreRules,
		"not-fixed": h.NotFixed, "owner": h.Owner,
	} {
		if n > 0 {
			out[reason] = n
		}
	}
	return out
}

// toIgnored returns the ignore rules with what each left out.
func toIgnored(rules *ignore.Rules, counts map[int]int) []api.ScanIgnoreRule {
	var out []api.ScanIgnoreRule
	for i, r := range rules.List() {
		out = append(out, api.ScanIgnoreRule{
			ID: r.ID, Package: r.Package, Path: r.Path, Reason: r.Reason, Expires: r.Expires,
			Expired: rules.Expired(i), Count: counts[i],
		})
	}
	return out
}

func toNotEvaluated(list []match.NotEvaluated) []api.ScanNotEvaluated {
	var out []api.ScanNotEvaluated
	for _, u := range list[:min(len(list), maxNamedFiles)] {
		out = append(out, api.ScanNotEvaluated{
			Name: u.Package.Name, Version: u.Package.Version, Type: string(u.Package.Kind), Reason: u.Reason,
		})
	}
	return out
}

func toNoAdvisories(list []match.NoAdvisories) []api.ScanNoAdvisories {
	var out []api.ScanNoAdvisories
	for _, n := range list[:min(len(list), maxNamedFiles)] {
		out = append(out, api.ScanNoAdvisories{
			Type: string(n.Kind), Distribution: n.Distribution, Packages: n.Packages, Message: n.String(),
		})
	}
	return out
}

func toScanDatabase(info vulndb.Info) *api.ScanDatabase {
	out := &api.ScanDatabase{Built: info.Built, Sources: []api.ScanDatabaseSource{}}
	for _, s := range info.Sources {
		out.Sources = append(out.Sources, api.ScanDatabaseSource{Name: s.Name, Date: s.Date, Records: int64(s.Records)})
	}
	return out
}

// coverageLine formats the line about the coverage of a report.
func coverageLine(c *api.ScanCoverage, hidden int) string {
	skipped := 0
	for _, s := range c.Skipped {
		if s.Partial {
			skipped++
		}
	}
	age := time.Since(c.Database.Built)
	left := ""
	if c.Excluded > 0 {
		left = ", " + cli.Plural(c.Excluded, "path") + " excluded"
	}
	if c.Development > 0 {
		left += ", " + cli.Plural(c.Development, "package") + " for development left out"
	}
	if n := c.Hidden["not-fixed"]; n > 0 {
		hidden -= n
		left += fmt.Sprintf(", %d without a fixed version left out", n)
	}
	return fmt.Sprintf("Coverage: %s, %d not readable, %s unread%s, database of %s (%s old), %s, %d suppressed%s%s",
		cli.Plural(len(c.Volumes), "volume"), skipped, cli.Plural(c.Unreads, "file"), left,
		c.Database.Built.UTC().Format(time.DateOnly), cli.Plural(int(age.Hours()/24), "day"),
		cli.Plural(c.Unknown, "unknown score"), hidden, notEvaluatedLine(c), noAdvisoriesLine(c))
}

// noAdvisoriesLine names the kinds and releases without advisories; "" for none.
func noAdvisoriesLine(c *api.ScanCoverage) string {
	var b strings.Builder
	for _, n := range c.NoAdvisories {
		b.WriteString(", " + cli.EscapeName(n.Message))
	}
	return b.String()
}

// notEvaluatedLine counts the packages that were not evaluated and names the first; "" when all were.
func notEvaluatedLine(c *api.ScanCoverage) string {
	if c.Unjudgeds == 0 {
		return ""
	}
	var names []string
	for _, u := range c.Unjudged[:min(len(c.Unjudged), 3)] {
		names = append(names, cli.EscapeName(u.Name+" "+u.Version))
	}
	if more := c.Unjudgeds - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf(", %s not evaluated: %s", cli.Plural(c.Unjudgeds, "package"), strings.Join(names, ", "))
}
