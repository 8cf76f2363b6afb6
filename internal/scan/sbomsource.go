package scan

import (
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/sbom"
)

// catalogSBOM takes the packages of a bill of materials. Components that cannot be evaluated, and a document that says
// that it is incomplete, make the scan partial.
func (i *Inventory) catalogSBOM() error {
	c, err := sbom.Read(i.Source.Target)
	if err != nil {
		return err
	}
	i.Packages = catalog.Merge(c.Packages)
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
