package imagescan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/scanned"
)

// rematchOptions are the flags of commands that replace the database, and then compare it with the packages of all
// scanned versions.
type rematchOptions struct {
	controllerOptions
	cacheOptions
}

func (o *rematchOptions) add(cmd *cobra.Command) *cobra.Command {
	o.controllerOptions.addFlags(cmd.Flags())
	o.cacheOptions.addFlag(cmd)
	return cmd
}

// open checks the license and creates the client, before the database is replaced.
func (o *rematchOptions) open(g *globals) error {
	if o.controllerURL == "" {
		return nil
	}
	if _, err := g.license(); err != nil {
		return err
	}
	return o.openClient(g)
}

// rematchHelp describes what the flags do.
const rematchHelp = `

With --controller, the packages of all versions that were scanned on this machine are compared with the
database again, without a scan, and the controller is sent what changed.`

// run sends the controller which vulnerabilities of the database the scanned versions have.
func (o *rematchOptions) run(ctx context.Context, g *globals, s settings) error {
	if o.client == nil {
		return nil
	}
	kept := o.versions()
	if kept == nil {
		return errors.New("--controller: the directory of kept scans was not found; set --cache-dir")
	}
	j, err := (&matchOptions{noUpdate: true}).newEvaluator(ctx, g, s)
	if err != nil {
		return err
	}
	defer j.close()
	all, err := loadVersions(g, kept)
	if err != nil {
		return err
	}
	list, err := all.match(ctx, j)
	if err != nil {
		return err
	}
	n, err := o.sendAll(ctx, list)
	if n.failed != nil { // the controller was reached
		err = errors.Join(err, o.forget(ctx, kept, list, n))
	}
	if err != nil {
		return err
	}
	g.printMessage("Compared %s with the database: %d changed and sent to %s%s", cli.Plural(len(list), "version"),
		n.sent, o.controllerURL, n.note())
	return nil
}

// forget removes the kept packages of the removed versions that the controller does not need: no instance runs them,
// and no node has them.
func (o *rematchOptions) forget(
	ctx context.Context, kept *scanned.Versions, list []versionReport, n sentReports,
) error {
	gone := slices.DeleteFunc(slices.Clone(list), func(r versionReport) bool { return !r.Removed || n.failed[r.name] })
	if len(gone) == 0 {
		return nil
	}
	reported, err := o.reported(ctx)
	if err != nil {
		return err
	}
	for _, r := range gone {
		if _, needed := reported[r.name]; needed {
			continue
		}
		if err := kept.Remove(r.name); err != nil {
			return err
		}
	}
	return nil
}

// versionSet is the packages of many versions, each package once.
type versionSet struct {
	versions []*scanned.Version // without packages
	packages []catalog.Package
	users    map[string][]int // versions with a package, by its key
	gone     map[string]bool  // versions that their storage no longer has, by name
}

// loadVersions reads the kept versions. Damaged ones are removed.
func loadVersions(g *globals, kept *scanned.Versions) (*versionSet, error) {
	names, err := kept.Names()
	if err != nil {
		return nil, fmt.Errorf("read the kept scans: %w", err)
	}
	set := &versionSet{users: map[string][]int{}, gone: map[string]bool{}}
	for _, name := range names {
		v, err := kept.Load(name)
		if err != nil {
			g.printMessage("Removed a kept scan that cannot be read: %v", err)
			if err := kept.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		set.add(v)
	}
	set.findGone()
	return set, nil
}

func (s *versionSet) add(v *scanned.Version) {
	n := len(s.versions)
	for i := range v.Packages {
		p := &v.Packages[i]
		key := packageKey(p)
		if s.users[key] == nil {
			s.packages = append(s.packages, *p)
		}
		s.users[key] = append(s.users[key], n)
	}
	v.Packages = nil
	s.versions = append(s.versions, v)
}

// packageKey returns a text that differs for packages that may match differently.
func packageKey(p *catalog.Package) string {
	parts := []string{
		string(p.Kind), p.Name, p.Version, p.PURL, fmt.Sprint(p.Replaced),
		p.Distribution, p.Owner, p.Source, p.SourceVersion, p.Arch,
	}
	for _, list := range [][]string{p.CPEs, p.Locations, p.BundleIDs} {
		parts = append(append(parts, "\x00"), list...)
	}
	return strings.Join(parts, "\x01")
}

// findGone finds the versions that were removed from their storage. One that cannot be read has removed none.
func (s *versionSet) findGone() {
	contents := map[string]map[string][]string{} // by storage and template
	for _, v := range s.versions {
		at, known := contents[v.Storage]
		if !known {
			at = storageContents(v.Storage)
			contents[v.Storage] = at
		}
		s.gone[v.Name()] = at != nil && !slices.Contains(at[v.TemplateID], v.ContentID)
	}
}

// storageContents returns the contents of a storage by template; nil when it cannot be read in whole.
func storageContents(base string) map[string][]string {
	storage, err := disk.OpenStorage(base)
	if err != nil {
		return nil
	}
	defer func() { _ = storage.Close() }()
	list, damaged, err := storage.Contents()
	if err != nil || len(damaged) > 0 || len(list) == 0 {
		return nil
	}
	return list
}

// lacking reports which versions have packages that the database has no advisories for.
func (s *versionSet) lacking(none []match.NoAdvisories) map[int]bool {
	type group struct {
		kind         catalog.PackageType
		distribution string
	}
	groups := map[group]bool{}
	for _, n := range none {
		groups[group{n.Kind, n.Distribution}] = true
	}
	out := map[int]bool{}
	for i := range s.packages {
		p := &s.packages[i]
		g := group{kind: p.Kind}
		if p.Kind.IsOS() {
			g.distribution = p.Distribution
		}
		if groups[g] {
			for _, n := range s.users[packageKey(p)] {
				out[n] = true
			}
		}
	}
	return out
}

// match returns what the controller is sent about each version.
func (s *versionSet) match(ctx context.Context, j *evaluator) ([]versionReport, error) {
	rules := j.rules
	rules.Ignore = nil // its rules may remove locations, which the key of a package has
	res, err := match.Match(ctx, j.db, s.packages, match.Options{Rules: rules})
	if err != nil {
		return nil, withAdvice(err)
	}
	filter, err := match.NewRuleFilter(j.rules)
	if err != nil {
		return nil, err
	}
	found := make([][]match.Finding, len(s.versions))
	for _, f := range res.Findings {
		users := s.users[packageKey(&f.Package)]
		if !filter.Keep(&f) {
			continue
		}
		for _, n := range users {
			found[n] = append(found[n], f)
		}
	}
	lacking := s.lacking(res.NoAdvisories)
	list := make([]versionReport, len(s.versions))
	for n, v := range s.versions {
		list[n] = newReport(v, j.db.Info().Built, found[n])
		list[n].Partial = v.Partial || lacking[n]
		list[n].Removed = s.gone[list[n].name]
	}
	return list, nil
}
