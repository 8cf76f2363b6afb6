package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/buildyard/buildyard/api"
)

const noAssertion = "NOASSERTION"

// writeSPDX writes the packages as SPDX 2.3. The format can express vulnerabilities only as
// references of a package, which each match becomes.
func writeSPDX(w io.Writer, r Report, o Options) error {
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      r.Source.Type + ":" + r.Source.Target,
		DocumentNamespace: "urn:uuid:" + uuid.NewString(),
		CreationInfo: &spdx.CreationInfo{
			Created:  o.Now.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: o.Tool + "-" + o.Version}},
		},
	}
	if r.Coverage.Partial {
		doc.CreationInfo.CreatorComment = partialReason(r.Coverage)
	}
	found := map[string][]api.ScanMatch{}
	for _, m := range r.Matches {
		found[componentRef(m.Artifact)] = append(found[componentRef(m.Artifact)], m)
	}
	for i, p := range r.Packages {
		id := common.ElementID(fmt.Sprintf("Package-%d", i+1))
		doc.Packages = append(doc.Packages, spdxPackage(id, p, found[componentRef(p)]))
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(id)),
			Relationship: common.TypeRelationshipDescribe,
		})
	}
	return spdxjson.Write(doc, w, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
}

func spdxPackage(id common.ElementID, p api.ScanPackage, matches []api.ScanMatch) *spdx.Package {
	out := &spdx.Package{
		PackageName: p.Name, PackageSPDXIdentifier: id, PackageVersion: p.Version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion,
		PackageCopyrightText: noAssertion,
	}
	if isApplication(p) {
		out.PrimaryPackagePurpose = "APPLICATION"
	}
	for _, l := range p.Licenses {
		out.PackageLicenseComments += l + "\n"
	}
	for _, l := range p.Locations {
		out.PackageSourceInfo += l.Path + "\n"
	}
	if m := p.Metadata; m != nil && m.Source != "" {
		out.PackageSourceInfo += "built from: " + m.Source + " " + m.SourceVersion + "\n"
	}
	if m := p.Metadata; m != nil && m.Owner != "" {
		out.PackageSourceInfo += "belongs to: " + m.Owner + "\n"
	}
	add := func(category, kind, locator string) {
		out.PackageExternalReferences = append(out.PackageExternalReferences,
			&spdx.PackageExternalReference{Category: category, RefType: kind, Locator: locator})
	}
	if p.PURL != "" {
		add(common.CategoryPackageManager, common.TypePackageManagerPURL, p.PURL)
	}
	for _, c := range p.CPEs {
		add(common.CategorySecurity, common.TypeSecurityCPE23Type, c)
	}
	if i := slices.IndexFunc(matches, mayBePatched); i >= 0 {
		out.PackageComment = distroPatchedLabel + ": " + matches[i].Vulnerability.DistroPatched
	}
	seen := map[string]bool{}
	for _, m := range matches {
		for _, page := range webAddresses(m.Vulnerability) {
			if !seen[page] {
				seen[page] = true
				add(common.CategorySecurity, common.TypeSecurityAdvisory, page)
			}
		}
	}
	return out
}
