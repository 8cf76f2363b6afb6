package catalog

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
)

// HasOwner reports whether packages of a kind may belong to a package of an operating system or to a formula: those
// of programming languages, and their runtimes.
func (t PackageType) HasOwner() bool { return languageByType[t] != "" || t == Runtime }

// assignOwners finds the owners of packages. A package that is at several paths becomes one for each owner, so that
// all of them are as Merge would leave them. Those in lock files of an owner are left out.
func (r *scanRun) assignOwners(ctx context.Context, list []Package) []Package {
	var systems []*Package
	var paths []string
	for i := range list {
		switch p := &list[i]; {
		case p.Kind.IsOS():
			systems = append(systems, p)
		case p.Kind.HasOwner():
			for _, l := range p.Locations {
				paths = append(paths, FileOf(l))
			}
		}
	}
	owners := &Owners{}
	if len(systems) > 0 && len(paths) > 0 {
		s := ownerSearches{extractors: r.patterns.extractors, tree: r.root, workers: r.options.Workers}
		owners.byLocation = s.find(ctx, systems, paths)
		r.walk.addWarnings(s.warnings)
		r.result.Unreadable += len(s.warnings)
	}
	var out []Package
	for i := range list {
		p := list[i]
		if !p.Kind.HasOwner() {
			out = append(out, p)
			continue
		}
		split := r.patterns.splitByOwner(p, owners)
		if extra := int64(len(split)-1) * packageBaseBytes; extra > 0 {
			if len(out)+len(split) > r.options.Limits.Packages ||
				r.packages.kept.usedBytes+extra > r.options.Limits.TextBytes {
				r.packages.droppedEntries += len(split)
				continue
			}
			r.packages.kept.usedBytes += extra
		}
		out = append(out, split...)
	}
	sortPackages(out)
	return out
}

// splitByOwner returns a package once for each owner of its paths.
func (c *patternTable) splitByOwner(p Package, owners *Owners) []Package {
	byOwner := map[fileOwner][]string{}
	for _, l := range p.Locations {
		o := owners.ownerOf(l)
		if o.owner != "" && c.declares(l) {
			continue
		}
		byOwner[o] = append(byOwner[o], l)
	}
	out := make([]Package, 0, len(byOwner))
	for o, locations := range byOwner {
		part := p
		part.Owner, part.Distribution, part.Locations = o.owner, o.distribution, slices.Clip(locations)
		out = append(out, part)
	}
	return out
}

// declares reports whether a file declares packages without being installed with them.
func (c *patternTable) declares(location string) bool {
	file := strings.TrimPrefix(location, "/")
	return slices.ContainsFunc(c.matchName(file, path.Base(file), false), func(i int) bool {
		d, ok := c.extractors[i].(Declarer)
		return ok && d.Declares(file)
	})
}

// brewPrefixes are the names of the directories that Homebrew installs to, as /opt/homebrew and /usr/local, and the
// root of a tree that is one of them.
var brewPrefixes = []string{"homebrew", "Homebrew", "brew", ".linuxbrew", "local", "."}

// KegOwner returns the owner of a file below the keg of a formula of Homebrew, Cellar/NAME/VERSION/; "" for others.
func KegOwner(file string) string {
	before, rest, ok := cutAroundDir(file, "Cellar/")
	if !ok || !slices.Contains(brewPrefixes, path.Base(before)) {
		return ""
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 || parts[0] == "" || parts[1] == "" {
		return ""
	}
	return (&Package{Kind: Brew, Name: parts[0], Version: parts[1]}).OwnerName()
}

// sortPackages sorts packages by their names, and those of one name by what else identifies them.
func sortPackages(list []Package) {
	slices.SortFunc(list, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Distribution, b.Distribution),
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.SourceVersion, b.SourceVersion))
	})
}
