package imagescan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/package-url/packageurl-go"
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/catalog/osrelease"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/reach"
	"github.com/buildyard/buildyard/internal/scan/report"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	*globals
	matchOptions
	bundleID string
	isCask   bool
	format   string
}

func explainCommand(g *globals) *cobra.Command {
	o := &explainOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "explain CVE PACKAGE",
		Short: "Explain a match decision",
		Long: `explain prints the steps of the match decision for one vulnerability of one package: the deciding source,
its version ranges, and the rule that suppresses it.

PACKAGE is type:name@version as in a report, or a package URL.`,
		Example: `  imagescan explain CVE-2019-10744 npm:lodash@4.17.11
  imagescan explain CVE-2021-44228 pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1
  imagescan explain CVE-2024-7971 "macos-app:Google Chrome@128.0.6613.83" --bundle-id com.google.Chrome
  imagescan explain CVE-2024-7971 brew:google-chrome@128.0.6613.83 --cask`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1]) },
	}
	o.addFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.bundleID, "bundle-id", "", "bundle identifier of a macOS application")
	fs.BoolVar(&o.isCask, "cask", false, "the Homebrew package is a cask, not a formula")
	fs.StringVarP(&o.format, "report-format", "f", "table", "report format: json or table")
	_ = cmd.RegisterFlagCompletionFunc("report-format",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *explainOptions) run(ctx context.Context, id, name string) error {
	p, err := parsePackage(name)
	if err == nil && o.isCask && p.Kind != catalog.Brew {
		err = fmt.Errorf("--cask requires a package of type %s", catalog.Brew)
	}
	if err == nil && o.format != "table" && o.format != "json" {
		err = fmt.Errorf("invalid report format %q: want table or json", o.format)
	}
	if err != nil {
		return cli.Usage(err)
	}
	p.BundleIDs = []string{o.bundleID}
	if o.isCask {
		p = asCask(p)
	}
	p = scan.Complete(p)
	s, err := o.settings()
	if err != nil {
		return cli.Usage(err)
	}
	if _, err := o.license(); err != nil {
		return err
	}
	j, err := o.newEvaluator(ctx, o.globals, s)
	if err != nil {
		return err
	}
	defer j.close()
	e, err := match.Explain(ctx, j.db, match.ExplainRequest{ID: vulnerabilityID(id), Package: p},
		match.Options{Rules: j.rules})
	if err != nil {
		return err
	}
	if e.Finding != nil {
		steps, err := reach.Explain(j.db, e.Finding)
		if err != nil {
			return withAdvice(err)
		}
		e.Steps = append(e.Steps, steps...)
	}
	if err := o.write(e); err != nil {
		return err
	}
	err = unknownError(ctx, j.db, e)
	if err == nil || e.KnownPackage {
		return err
	}
	cask, explainErr := j.explainCask(ctx, id, p)
	if explainErr == nil && cask != nil {
		err = fmt.Errorf("no formula %s is in the database, but there is a cask of this name: add --cask", p.Name)
	}
	return err
}

// explainCask explains a formula as the cask of its name; nil where the database has nothing on it, or where it is a
// cask already.
func (j *evaluator) explainCask(ctx context.Context, id string, p catalog.Package) (*match.Explanation, error) {
	if p.Kind != catalog.Brew || cpe.IsCask(p) {
		return nil, nil
	}
	p = scan.Complete(asCask(p))
	e, err := match.Explain(ctx, j.db, match.ExplainRequest{ID: vulnerabilityID(id), Package: p},
		match.Options{Rules: j.rules})
	if err != nil || !e.KnownPackage {
		return nil, err
	}
	return e, nil
}

// asCask returns a package of Homebrew at the place of a cask, which distinguishes it from a formula.
func asCask(p catalog.Package) catalog.Package {
	p.Locations = []string{"/opt/homebrew/Caskroom/" + p.Name}
	return p
}

// unknownError returns an error for an unknown vulnerability or package, which is more likely a typing
// error than a result.
func unknownError(ctx context.Context, db *vulndb.DB, e *match.Explanation) error {
	if !e.KnownID {
		known, err := hasAdvisory(ctx, db, e.ID)
		if err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("%s not found in the database; check the ID", e.ID)
		}
	}
	if !e.KnownPackage {
		return fmt.Errorf("%s package %s not found in the database; check its name", e.Package.Kind, e.Package.Name)
	}
	return nil
}

// hasAdvisory reports whether an advisory about any package has the ID.
func hasAdvisory(ctx context.Context, db *vulndb.DB, id string) (bool, error) {
	for a, err := range db.AllAdvisories() {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return false, err
		}
		if a.ID == id || slices.Contains(a.Related, id) || slices.Contains(a.CVEs, id) {
			return true, nil
		}
	}
	return false, nil
}

// explanationJSON is the JSON form of an explanation.
type explanationJSON struct {
	ID       string   `json:"id"`
	Package  any      `json:"package"`
	Reported bool     `json:"reported"`
	Steps    []string `json:"steps"`
}

func (o *explainOptions) write(e *match.Explanation) error {
	if o.format == "json" {
		e.Package.Locations = nil // no scan found it
		return writeJSON(o.Out,
			explanationJSON{e.ID, report.Packages([]catalog.Package{e.Package})[0], e.Finding != nil, e.Steps})
	}
	for _, s := range e.Steps {
		if _, err := fmt.Fprintln(o.Out, cli.EscapeName(s)); err != nil {
			return err
		}
	}
	return nil
}

// kindByPURLType maps the types of package URLs to kinds.
var kindByPURLType = map[string]catalog.PackageType{
	"gem": catalog.Gem, "pypi": catalog.Python, "npm": catalog.NPM, "maven": catalog.Java, "golang": catalog.Go,
	"cargo": catalog.Rust,
	"brew":  catalog.Brew, "cocoapods": catalog.Pod, "swift": catalog.Swift,
	"deb": catalog.Deb, "rpm": catalog.RPM, "apk": catalog.APK,
}

// parsePackage parses type:name@version, or a package URL.
func parsePackage(text string) (p catalog.Package, err error) {
	if strings.HasPrefix(text, "pkg:") {
		return parsePURL(text)
	}
	kind, rest, _ := strings.Cut(text, ":")
	at := strings.LastIndex(rest, "@")
	if at <= 0 || at == len(rest)-1 {
		return p, fmt.Errorf("invalid package %q: want type:name@version, such as npm:lodash@4.17.11", text)
	}
	p = catalog.Package{Kind: catalog.PackageType(kind), Name: rest[:at], Version: rest[at+1:]}
	if p.Kind.IsOS() {
		return p, releaseError(text, p.Kind)
	}
	if slices.Contains(catalog.Kinds, p.Kind) {
		return p, nil
	}
	return p, fmt.Errorf("invalid package %q: type %q is not one of %s", text, kind, kindList())
}

// releaseError reports a package of an operating system without its release, on which its advisories depend.
func releaseError(text string, kind catalog.PackageType) error {
	return fmt.Errorf("package %q has no release of its operating system, on which the advisories of %s packages "+
		"depend: use its package URL from a report, such as "+
		"pkg:deb/debian/libssl3@3.0.11-1~deb12u2?distro=debian-12&upstream=openssl", text, kind)
}

func kindList() string {
	names := make([]string, len(catalog.Kinds))
	for i, k := range catalog.Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

func parsePURL(text string) (p catalog.Package, err error) {
	u, err := packageurl.FromString(text)
	if err != nil {
		return p, fmt.Errorf("invalid package URL %q: %w", text, err)
	}
	kind, ok := kindByPURLType[u.Type]
	if u.Type == "generic" && u.Namespace == "macos" {
		kind, ok, u.Namespace = catalog.MacOSApp, true, ""
		if u.Name == "macOS" {
			kind = catalog.System
		}
	}
	if !ok && u.Type == "generic" && u.Namespace == "" {
		kind, ok = catalog.Runtime, true
	}
	switch {
	case !ok:
		return p, fmt.Errorf("invalid package URL %q: type %q is not supported", text, u.Type)
	case u.Version == "":
		return p, errors.New("package URL has no version; want @ and a version")
	}
	name := u.Name
	if u.Namespace != "" {
		name = u.Namespace + map[bool]string{true: ":", false: "/"}[kind == catalog.Java] + u.Name
	}
	version := u.Version
	if kind == catalog.Gem && u.Qualifiers.Map()["platform"] == "java" {
		version += catalog.JRubySuffix
	}
	p = catalog.Package{Kind: kind, Name: name, Version: version}
	if kind.IsOS() {
		p.Name = u.Name
		if !setOrigin(&p, u) {
			return p, releaseError(text, kind)
		}
	}
	return p, nil
}

// setOrigin sets the fields of a package of an operating system that its package URL has as namespace and
// qualifiers. It reports whether the release is among them: with or without the ID before its number.
func setOrigin(p *catalog.Package, u packageurl.PackageURL) bool {
	values := u.Qualifiers.Map()
	p.Arch = values["arch"]
	release := strings.TrimPrefix(values["distro"], u.Namespace+"-")
	if u.Namespace == "" || release == "" || release[0] < '0' || release[0] > '9' {
		return false
	}
	p.Distribution = osrelease.Name(u.Namespace, release)
	if epoch := values["epoch"]; p.Kind == catalog.RPM && epoch != "" && epoch != "0" {
		p.Version = epoch + ":" + p.Version
	}
	p.Source, p.SourceVersion = p.Name, p.Version
	if name, version, _ := strings.Cut(values["upstream"], "@"); name != "" {
		p.Source, p.SourceVersion = name, cmp.Or(version, p.Version)
	}
	return true
}

// vulnerabilityID normalizes an ID; CVE IDs may be entered in lower case.
func vulnerabilityID(text string) string {
	if up := strings.ToUpper(text); strings.HasPrefix(up, "CVE-") {
		return up
	}
	return text
}
