package catalog

import (
	"context"
	"slices"
)

// IsDatabase reports whether a file is a database of the packages of an operating system. When it changes, the owners
// of other files may have changed.
func (f *Finder) IsDatabase(name string) bool {
	return slices.ContainsFunc(f.patterns.extractors, func(e Extractor) bool {
		o, ok := e.(OwnerFinder)
		if !ok {
			return false
		}
		_, ok = o.Root(name)
		return ok && o.FileRequired(name)
	})
}

// Owners are the owners of the files of one tree. The zero value knows only those in kegs of Homebrew.
type Owners struct {
	byLocation map[string]fileOwner
	Warnings   []Warning // what could not be read
}

// FindOwners reads package databases, and finds the owners of files in them. A missing database has no packages.
func (f *Finder) FindOwners(ctx context.Context, databases, files []string) *Owners {
	var found []Package
	for _, name := range sortedUnique(slices.Clone(databases)) {
		if w, ok := f.WantedAt(name); ok {
			r := f.ReadFile(ctx, w)
			found = append(found, r.Packages...)
		}
	}
	systems := make([]*Package, 0, len(found))
	for i := range found {
		if found[i].Kind.IsOS() {
			systems = append(systems, &found[i])
		}
	}
	if len(systems) == 0 || len(files) == 0 {
		return &Owners{}
	}
	locations := make([]string, len(files))
	for i, name := range files {
		locations[i] = displayPath(name)
	}
	s := ownerSearches{extractors: f.patterns.extractors, tree: f.root, workers: f.options.Workers}
	return &Owners{byLocation: s.find(ctx, systems, locations), Warnings: s.warnings}
}

// ownerOf returns the owner of the file of a location.
func (o *Owners) ownerOf(location string) fileOwner {
	location = FileOf(location)
	if found := o.byLocation[location]; found.owner != "" {
		return found
	}
	return fileOwner{owner: KegOwner(location)}
}

// AssignOwners returns the packages that a file has, with their owners. A lock file that an installed package owns has
// none.
func (f *Finder) AssignOwners(o *Owners, name string, list []Package) []Package {
	owner := o.ownerOf(displayPath(name))
	if owner.owner == "" {
		return list
	}
	declares := f.patterns.declares(name)
	out := make([]Package, 0, len(list))
	for _, p := range list {
		if p.Kind.HasOwner() {
			if declares {
				continue
			}
			p.Owner, p.Distribution = owner.owner, owner.distribution
		}
		out = append(out, p)
	}
	return out
}

// Owns reports whether a package at a location has the owner that is found for the location.
func (o *Owners) Owns(p *Package, location string) bool {
	return o.ownerOf(location) == fileOwner{p.Owner, p.Distribution}
}
