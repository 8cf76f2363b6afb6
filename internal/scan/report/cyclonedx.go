package report

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// sourceRef refers to what was scanned.
const sourceRef = "source"

// writeCycloneDX writes a bill of materials with its vulnerabilities.
func writeCycloneDX(w io.Writer, r Report, o Options) error {
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewString()
	bom.Metadata = &cdx.Metadata{
		Timestamp: o.Now.UTC().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: sourceRef, Type: cdx.ComponentTypeFile, Name: r.Source.Type + ":" +
			r.Source.Target},
		Tools: &cdx.ToolsChoice{
			Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: o.Tool, Version: o.Version}},
		},
	}
	components := make([]cdx.Component, len(r.Packages))
	for i, p := range r.Packages {
		components[i] = cdxComponent(p)
	}
	bom.Components = &components
	bom.Dependencies = cdxDependencies(r.Packages)
	if r.Coverage.Partial {
		bom.Metadata.Properties = &[]cdx.Property{{Name: "buildyard:partial", Value: partialReason(r.Coverage)}}
	}
	if r.Coverage.Partial && hasUnread(r.Coverage) {
		bom.Compositions = &[]cdx.Composition{{
			Aggregate: cdx.CompositionAggregateIncomplete, Assemblies: &[]cdx.BOMReference{sourceRef},
			Dependencies: &[]cdx.BOMReference{sourceRef},
		}}
	}
	if !r.OnlyPackages {
		vulnerabilities := cdxVulnerabilities(r.Matches)
		bom.Vulnerabilities = &vulnerabilities
	}
	e := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	e.SetPretty(true)
	e.SetEscapeHTML(false)
	return e.Encode(bom)
}

// componentRef names a package within a document: those that belong to another package differ from those
// that do not, and those of one architecture or source from those of another.
func componentRef(p api.ScanPackage) string {
	parts := []string{packageRef(p)}
	if m := p.Metadata; m != nil {
		parts = append(parts, m.Arch, m.Owner, m.Distribution, m.Source, m.SourceVersion)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// isApplication reports whether a bill of materials has a package as an application. Package URLs of macOS do not tell
// applications from other packages.
func isApplication(p api.ScanPackage) bool { return p.Type == "macos-app" || p.Type == "brew" }

func cdxComponent(p api.ScanPackage) cdx.Component {
	kind := cdx.ComponentTypeLibrary
	if isApplication(p) {
		kind = cdx.ComponentTypeApplication
	}
	c := cdx.Component{BOMRef: componentRef(p), Type: kind, Name: p.Name, Version: p.Version, PackageURL: p.PURL}
	if len(p.CPEs) > 0 {
		c.CPE = p.CPEs[0]
	}
	if len(p.Licenses) > 0 {
		licenses := cdx.Licenses{}
		for _, l := range p.Licenses {
			licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{Name: l}})
		}
		c.Licenses = &licenses
	}
	occurrences := make([]cdx.EvidenceOccurrence, len(p.Locations))
	for i, l := range p.Locations {
		occurrences[i].Location = l.Path
	}
	c.Evidence = &cdx.Evidence{Occurrences: &occurrences}
	if properties := cdxProperties(p.Metadata); len(properties) > 0 {
		c.Properties = &properties
	}
	return c
}

// cdxProperties returns where a package is from.
func cdxProperties(m *api.ScanPackageMetadata) (out []cdx.Property) {
	if m == nil {
		return nil
	}
	for _, id := range m.BundleIDs {
		out = append(out, cdx.Property{Name: "buildyard:bundleId", Value: id})
	}
	for _, p := range []cdx.Property{
		{Name: "buildyard:distribution", Value: m.Distribution},
		{Name: "buildyard:source", Value: m.Source},
		{Name: "buildyard:sourceVersion", Value: m.SourceVersion},
		{Name: "buildyard:arch", Value: m.Arch},
		{Name: "buildyard:owner", Value: m.Owner},
		{Name: "buildyard:replaced", Value: map[bool]string{true: "true"}[m.Replaced]},
	} {
		if p.Value != "" {
			out = append(out, p)
		}
	}
	return out
}

// cdxDependencies returns what the source has, and which packages have others. That a package needs another is not
// known from what is installed.
func cdxDependencies(packages []api.ScanPackage) *[]cdx.Dependency {
	children := map[string][]string{}
	known := map[string]bool{}
	type ownerKey struct{ name, distribution string }
	owners := map[ownerKey]string{} // -> reference
	for _, p := range packages {
		ref := componentRef(p)
		known[ref] = true
		key := ownerKey{name: p.Type + "/" + p.Name + "@" + p.Version}
		if p.Metadata != nil {
			key.distribution = p.Metadata.Distribution
		}
		owners[key] = ref
	}
	for _, p := range packages {
		parent := sourceRef
		if m := p.Metadata; m != nil && m.Owner != "" {
			parent = cmp.Or(owners[ownerKey{m.Owner, m.Distribution}], parent)
		}
		children[parent] = append(children[parent], componentRef(p))
	}
	out := make([]cdx.Dependency, 0, len(packages)+1)
	for _, ref := range append([]string{sourceRef}, slices.Sorted(maps.Keys(known))...) {
		d := cdx.Dependency{Ref: ref}
		if list := slices.Compact(slices.Sorted(slices.Values(children[ref]))); len(list) > 0 {
			d.Dependencies = &list
		}
		out = append(out, d)
	}
	return &out
}

// cdxVulnerabilities returns each vulnerability once, with all affected packages.
func cdxVulnerabilities(matches []api.ScanMatch) []cdx.Vulnerability {
	at := map[string]int{}
	out := []cdx.Vulnerability{}
	for _, m := range matches {
		i, ok := at[m.Vulnerability.ID]
		if !ok {
			i = len(out)
			at[m.Vulnerability.ID] = i
			out = append(out, cdxVulnerability(m))
		}
		if m.Vulnerability.DistroPatched != "" {
			addProperty(&out[i], distroPatchedLabel, m.Vulnerability.DistroPatched+" "+componentRef(m.Artifact))
		}
		addReachable(&out[i], m)
		affects := out[i].Affects
		if !slices.ContainsFunc(*affects, func(a cdx.Affects) bool { return a.Ref == componentRef(m.Artifact) }) {
			*affects = append(*affects, cdx.Affects{Ref: componentRef(m.Artifact)})
		}
	}
	slices.SortFunc(out, func(a, b cdx.Vulnerability) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// addProperty adds a property, once. Those of one package have its reference in their values, since other packages of
// the vulnerability may differ.
func addProperty(v *cdx.Vulnerability, label, value string) {
	p := cdx.Property{Name: "buildyard:" + label, Value: value}
	if v.Properties == nil {
		v.Properties = &[]cdx.Property{}
	}
	if !slices.Contains(*v.Properties, p) {
		*v.Properties = append(*v.Properties, p)
	}
}

// addReachable adds for each location whether the program there has the vulnerable code.
func addReachable(v *cdx.Vulnerability, m api.ScanMatch) {
	if m.Vulnerability.Reachable == "" {
		return
	}
	for _, l := range m.Artifact.Locations {
		addProperty(v, reachableLabel, m.Vulnerability.Reachable+" "+componentRef(m.Artifact)+" "+l.Path)
	}
}

// cdxMethods are the methods of scores by the beginnings of their vectors.
var cdxMethods = []struct {
	prefix string
	method cdx.ScoringMethod
}{
	{"CVSS:4.", cdx.ScoringMethodCVSSv4},
	{"CVSS:3.1", cdx.ScoringMethodCVSSv31},
	{"CVSS:3.0", cdx.ScoringMethodCVSSv3},
	{"AV:", cdx.ScoringMethodCVSSv2},
}

func cdxVulnerability(m api.ScanMatch) cdx.Vulnerability {
	v := m.Vulnerability
	rating := cdx.VulnerabilityRating{Severity: cdx.Severity(v.Severity), Vector: v.Vector}
	for _, x := range cdxMethods {
		if strings.HasPrefix(v.Vector, x.prefix) {
			rating.Method = x.method
			break
		}
	}
	if v.BaseScore > 0 {
		rating.Score = &v.BaseScore
	}
	out := cdx.Vulnerability{
		BOMRef: v.ID, ID: v.ID, Ratings: &[]cdx.VulnerabilityRating{rating},
		Affects: &[]cdx.Affects{}, Description: v.Title, Detail: v.Description, Recommendation: fixText(m),
	}
	if v.Title == "" {
		out.Description, out.Detail = v.Description, ""
	}
	var pages []cdx.Advisory
	for _, r := range webAddresses(v) {
		pages = append(pages, cdx.Advisory{URL: r})
	}
	if pages != nil {
		out.Advisories = &pages
	}
	if v.URL != "" {
		out.Source = &cdx.Source{URL: v.URL}
	}
	var refs []cdx.VulnerabilityReference
	for _, id := range v.Related {
		refs = append(refs, cdx.VulnerabilityReference{ID: id, Source: &cdx.Source{Name: id}})
	}
	if refs != nil {
		out.References = &refs
	}
	return out
}
