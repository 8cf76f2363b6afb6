package encode

import (
	"strconv"
	"strings"
	"time"

	"github.com/facebookincubator/nvdtools/wfn"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/host"
	"github.com/buildyard/buildyard/internal/scan/report"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Package returns a package of the catalog.
func Package(p host.Package) api.HostPackage {
	return api.HostPackage{ScanPackage: report.PackageOf(p.Package), CreationTime: p.Created.UTC()}
}

// Vulnerability returns a finding.
func Vulnerability(f host.Finding) api.HostVulnerability {
	p, v := report.PackageOf(f.Package), report.VulnerabilityOf(f.Finding)
	return api.HostVulnerability{
		Vulnerability: api.HostFinding{
			MatchedCPEs: []api.HostMatchedCPE{
				{Cpe: toCPE(f.CPE), Constraint: f.Constraint, Version: f.Version, MatchType: f.Type},
			},
			ID: v.ID, Namespace: namespace(f), Score: v.BaseScore, URL: v.URL,
			RelatedVulnerabilities: related(f),
			Severity:               v.Severity, FixedVersions: v.FixedVersions, Exploited: v.Exploited, EPSS: v.EPSS,
			Unconfirmed: v.Unconfirmed, DistroPatched: v.DistroPatched,
			Known: f.FoundAt.UTC(),
		},
		Package: api.HostFindingPackage{
			ID: strconv.FormatUint(f.PackageID, 10), Name: p.Name, Version: p.Version, Type: p.Type,
			Locations: p.Locations,
			Language:  p.Language, Licenses: p.Licenses, CPEs: p.CPEs, PURL: p.PURL, Metadata: p.Metadata,
		},
	}
}

// nvdNamespace is the namespace of data from NVD.
const nvdNamespace = "nvd:cpe"

// namespace returns the source of a finding, and the kind of its package.
func namespace(f host.Finding) string {
	if f.Source == vulndb.NVD {
		return nvdNamespace
	}
	return string(f.Source) + ":" + string(f.Finding.Package.Kind)
}

// related returns the other names of a vulnerability; nil for none.
func related(f host.Finding) []api.HostRelated {
	var out []api.HostRelated
	for _, id := range f.Vulnerability.Related {
		out = append(out, api.HostRelated{ID: id, Namespace: sourceNamespace(id)})
	}
	return out
}

// sourceNamespace returns the namespace of an ID's source: "ghsa" of GHSA-jfh8-c2jp-5v3q.
func sourceNamespace(id string) string {
	who, _, _ := strings.Cut(id, "-")
	if who == "CVE" {
		return nvdNamespace
	}
	return strings.ToLower(who)
}

// toCPE returns the parts of a CPE; none if the text is not a CPE.
func toCPE(text string) api.HostCPE {
	a, err := wfn.UnbindFmtString(text)
	if err != nil {
		return api.HostCPE{}
	}
	return api.HostCPE{
		Part: a.Part, Vendor: a.Vendor, Product: a.Product, Version: a.Version, Update: a.Update, Edition: a.Edition,
		SWEdition: a.SWEdition, TargetSW: a.TargetSW, TargetHW: a.TargetHW, Other: a.Other, Language: a.Language,
	}
}

// Event returns an event of a host.
func Event(e host.Event) api.HostEvent {
	out := api.HostEvent{
		Time: e.Time.UTC(), Cause: string(e.Trigger),
		Counts:   api.HostChanges{Packages: e.Counts.New, Vulnerabilities: e.Counts.Findings, Gone: e.Counts.Removed},
		Packages: []api.HostPackage{}, Vulnerabilities: []api.HostVulnerability{}, Gone: []api.HostRemovedPackage{},
	}
	for _, p := range e.New {
		out.Packages = append(out.Packages, Package(p))
	}
	for _, f := range e.Findings {
		out.Vulnerabilities = append(out.Vulnerabilities, Vulnerability(f))
	}
	for _, p := range e.Removed {
		out.Gone = append(out.Gone, api.HostRemovedPackage{Name: p.Name, Version: p.Version, Type: string(p.Kind)})
	}
	return out
}

// timePointer returns a pointer to a time; nil for the zero time.
func timePointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
