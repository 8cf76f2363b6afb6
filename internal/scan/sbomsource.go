package scan

import (
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/sbom"
)

// catalogSBOM takes the packages of a bill of materials. Components that cannot be evaluated, and a document that says
// that it is incomplete, make the scan partial.
func (i *Inventory) catalogSBOM(o Options) error {
	c, err := sbom.Read(i.Source.Target)
	if err != nil {
		return err
	}
	i.Packages = catalog.Merge(i.excludeLocations(c.Packages, o))
	for k := range i.Packages {
		i.Packages[k].CPEs = cpe.ForPackage(i.Packages[k])
	}
	i.Volumes = []Volume{{
		Name: i.Source.Target, Format: c.Format, MountPath: "/", Files: c.Components, Packages: len(i.Packages),
	}}
	for _, o := range c.Omitted {
		name := fmt.Sprintf("%d components", o.Count)
		if o.Count == 1 {
			name = "1 component"
		}
		if o.Kind != "" {
			name += " (pkg:" + o.Kind + ")"
		}
		i.Skipped = append(i.Skipped, Skipped{Name: name, Reason: o.Reason + ": " + o.String(), MayHavePackages: true})
	}
	if c.Invalid > 0 {
		i.Skipped = append(i.Skipped, Skipped{
			Name: "the document", Reason: fmt.Sprintf("%d components have fields of a wrong form", c.Invalid),
			MayHavePackages: true,
		})
	} else if c.Incomplete {
		i.Skipped = append(i.Skipped, Skipped{
			Name: "the document", Reason: "it says that it is incomplete", MayHavePackages: true,
		})
	}
	return nil
}

// excludeLocations removes the locations that Options.Exclude leaves out, and packages that are at no other one.
func (i *Inventory) excludeLocations(packages []catalog.Package, o Options) []catalog.Package {
	if o.Exclude == nil {
		return packages
	}
	excluded := map[string]bool{} // the files of locations
	isExcluded := func(location string) bool {
		file := catalog.FileOf(location)
		if _, known := excluded[file]; !known {
			excluded[file] = o.excludes(file)
			if excluded[file] {
				i.Excluded++
			}
		}
		return excluded[file]
	}
	for k := range packages {
		packages[k].Locations = slices.DeleteFunc(packages[k].Locations, isExcluded)
	}
	return slices.DeleteFunc(packages, func(p catalog.Package) bool { return len(p.Locations) == 0 })
}
