package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/test/rig"
)

// system is the root of a system, and what its package manager lists.
type system struct {
	name     string
	dir      string
	kind     catalog.PackageType
	packages []subject
}

// debian are the two systems of the same packages, in their oldest and in their newest versions.
type debian struct {
	older, newer system
	fixes        map[string]fixes   // by source
	histories    map[string]history // by source: the changelog of the newest package
	notes        []string           // sources that have no advisories, and why
	choices      []choice
	repeated     int
}

// makeDebian makes both systems. The newer one is an upgrade of the older one.
func makeDebian(ctx context.Context, dir, cache string) (*debian, error) {
	older, newer := filepath.Join(dir, "debian-older"), filepath.Join(dir, "debian-newer")
	if err := rig.DebianTree(ctx, dir, older, release); err != nil {
		return nil, err
	}
	minimal, err := listDebs(ctx, older)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range minimal {
		names = append(names, p.name)
	}
	a, err := readArchive(ctx, cache)
	if err != nil {
		return nil, err
	}
	choices, err := a.choose(ctx, names)
	if err != nil {
		return nil, err
	}
	var oldest, newest []offer
	for _, c := range choices {
		if !slices.Contains(names, c.oldest.name) { // the others are installed
			oldest = append(oldest, c.oldest)
		}
		newest = append(newest, c.newest)
	}
	// A command of apt takes one version of a package.
	if err := errors.Join(a.download(ctx, oldest), a.download(ctx, newest)); err != nil {
		return nil, err
	}
	if err := unpackDebs(ctx, older, cache, oldest); err != nil {
		return nil, err
	}
	if _, err := rig.Output(ctx, dir, "cp", "-a", "--reflink=auto", older, newer); err != nil {
		return nil, err
	}
	var upgraded []offer
	for _, c := range choices {
		if c.newest.version != c.oldest.version || slices.Contains(names, c.newest.name) {
			upgraded = append(upgraded, c.newest)
		}
	}
	if err := unpackDebs(ctx, newer, cache, upgraded); err != nil {
		return nil, err
	}
	d := &debian{choices: choices}
	return d, d.read(ctx, older, newer)
}

// unpackDebs has dpkg unpack packages. They are not configured: that changes nothing that a scanner reads, and needs
// services that a tree does not have. The scripts before unpacking run in the tree.
func unpackDebs(ctx context.Context, tree, cache string, list []offer) error {
	args := []string{
		"--net", "--pid", "--fork", "--kill-child", "dpkg", "--root=" + tree, "--path-include=/usr/share/doc/*",
		"--force-depends", "--force-breaks", "--force-conflicts", "--force-overwrite", "--force-overwrite-dir",
		"--force-confnew", "--force-unsafe-io", "--no-triggers", "--unpack",
	}
	for _, o := range list {
		args = append(args, filepath.Join(cache, o.file()))
	}
	_, err := rig.Output(ctx, "", "unshare", args...)
	return err
}

// listDebs returns the packages that dpkg lists as unpacked or installed.
func listDebs(ctx context.Context, tree string) ([]subject, error) {
	text, err := rig.Output(ctx, "", "dpkg-query", "--root="+tree, "-W", "-f",
		`${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n`)
	if err != nil {
		return nil, err
	}
	var out []subject
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("dpkg-query has %q", line)
		}
		if f[0] == "not-installed" || f[0] == "config-files" || f[0] == "half-installed" {
			continue
		}
		out = append(out, subject{name: f[1], version: f[2], arch: f[3], source: f[4], sourceVersion: f[5]})
	}
	return out, nil
}

// read reads the packages and changelogs of both systems.
func (d *debian) read(ctx context.Context, older, newer string) error {
	d.older = system{name: "older", dir: older, kind: catalog.Deb}
	d.newer = system{name: "newer", dir: newer, kind: catalog.Deb}
	d.fixes, d.histories = map[string]fixes{}, map[string]history{}
	logs := map[*system]map[string]history{} // by package
	for _, s := range []*system{&d.newer, &d.older} {
		var err error
		if s.packages, err = listDebs(ctx, s.dir); err != nil {
			return err
		}
		if logs[s], err = changelogsOf(s); err != nil {
			return err
		}
		if err := setSince(ctx, slices.Collect(maps.Values(logs[s]))); err != nil {
			return err
		}
	}
	if err := d.chooseHistories(ctx, logs[&d.newer]); err != nil {
		return err
	}
	others := map[string][]history{} // by source
	for _, s := range []*system{&d.older, &d.newer} {
		for i := range s.packages {
			p := &s.packages[i]
			source, version := p.named()
			own, newest := logs[s][p.name], d.histories[source]
			if newest == nil {
				continue
			}
			t, ok := truthOf(own, newest, version)
			if !ok {
				d.notes = append(d.notes, fmt.Sprintf("%s: the changelog of %s has no entry of %s", source,
					newest[0].version, version))
				delete(d.histories, source)
				continue
			}
			p.fixed, p.affected = t.fixed, t.affected
			d.repeated += t.repeated
			others[source] = append(others[source], own)
		}
	}
	for source, newest := range d.histories {
		d.fixes[source] = fixesOf(newest, others[source]...)
	}
	d.forgetUnmeasured()
	return nil
}

// changelogsOf returns the changelog of each package that has one of its version.
func changelogsOf(s *system) (map[string]history, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := map[string]history{}
	for _, p := range s.packages {
		_, version := p.named()
		h, err := readChangelog(root, p.name, version)
		switch {
		case err == nil:
			out[p.name] = h
		case !errors.Is(err, errNoChangelog):
			return nil, err
		}
	}
	return out, nil
}

// chooseHistories sets the history of each source to the changelog of its newest package.
func (d *debian) chooseHistories(ctx context.Context, logs map[string]history) error {
	for _, p := range d.newer.packages {
		source, _ := p.named()
		h, known := logs[p.name], d.histories[source]
		if h == nil {
			continue
		}
		if known != nil {
			newer, err := isOlder(ctx, known[0].version, h[0].version)
			if err != nil {
				return err
			}
			if !newer {
				continue
			}
		}
		d.histories[source] = h
	}
	return nil
}

// forgetUnmeasured removes what is known about packages whose source has no advisories.
func (d *debian) forgetUnmeasured() {
	missing := set{}
	for _, s := range []*system{&d.older, &d.newer} {
		for i := range s.packages {
			p := &s.packages[i]
			source, _ := p.named()
			if d.histories[source] != nil {
				continue
			}
			p.fixed, p.affected = nil, nil
			missing.add(source)
		}
	}
	for source := range missing {
		if !slices.ContainsFunc(d.notes, func(n string) bool { return strings.HasPrefix(n, source+":") }) {
			d.notes = append(d.notes, source+": none of its packages has a changelog of its version")
		}
	}
	slices.Sort(d.notes)
	d.notes = slices.Compact(d.notes)
}
