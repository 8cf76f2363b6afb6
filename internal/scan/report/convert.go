package report

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Packages converts packages to those of reports.
func Packages(list []catalog.Package) []api.ScanPackage {
	out := make([]api.ScanPackage, len(list))
	for i, p := range list {
		out[i] = PackageOf(p)
	}
	return out
}

// Matches converts findings to those of reports: one match for each location of the package.
func Matches(findings []match.Finding) []api.ScanMatch {
	var out []api.ScanMatch
	for _, f := range findings {
		m := api.ScanMatch{
			Vulnerability: VulnerabilityOf(f),
			MatchDetails:  []api.ScanDetail{{CPE: f.CPE, Version: f.Version, Constraint: f.Constraint, Type: f.Type}},
		}
		for i := range f.Package.Locations {
			if i < len(f.Reachable) {
				s := f.Reachable[i]
				m.Vulnerability.Reachable, m.Vulnerability.LinkedFunctions = string(s.State), s.Functions
			}
			m.Artifact = apiPackage(f.Package, f.Package.Locations[i:i+1])
			out = append(out, m)
		}
	}
	return out
}

// PackageOf converts a package to that of a report.
func PackageOf(p catalog.Package) api.ScanPackage { return apiPackage(p, p.Locations) }

func apiPackage(p catalog.Package, paths []string) api.ScanPackage {
	locations := make([]api.ScanLocation, len(paths))
	for i, path := range paths {
		locations[i].Path = path
	}
	return api.ScanPackage{
		Name: p.Name, Version: p.Version, Type: string(p.Kind), Locations: locations, Language: p.Language,
		Licenses: orEmpty(p.Licenses), CPEs: orEmpty(p.CPEs), PURL: p.PURL,
		Metadata: metadataOf(p),
	}
}

// metadataOf returns where a package is from; nil when nothing says so.
func metadataOf(p catalog.Package) *api.ScanPackageMetadata {
	if !p.HasOrigin() && !p.Replaced && !p.Development && len(p.BundleIDs) == 0 {
		return nil
	}
	return &api.ScanPackageMetadata{
		Distribution: p.Distribution, Source: p.Source, SourceVersion: p.SourceVersion, Arch: p.Arch, Owner: p.Owner,
		BundleIDs: p.BundleIDs, Replaced: p.Replaced, Development: p.Development,
	}
}

// VulnerabilityOf returns the vulnerability of a finding in the form of a report.
func VulnerabilityOf(f match.Finding) api.ScanVulnerability {
	v := f.Vulnerability
	severity := string(v.Score.Severity)
	if severity == "" {
		severity = "unknown"
	}
	return api.ScanVulnerability{
		ID: v.ID, BaseScore: v.Score.Base, Severity: severity, URL: v.URL, Related: v.Related,
		FixedVersions: f.Fixed, Exploited: v.Exploited, EPSS: v.EPSS, Unconfirmed: f.Unconfirmed,
		DistroPatched: f.DistroPatched,
		Vector:        v.Score.Vector,
	}
}
