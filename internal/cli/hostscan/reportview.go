package hostscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/report"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// writeJSON writes the service's response, without its envelope.
func (o *reportOptions) writeJSON(r api.HostReport) error {
	var value any = r
	switch o.section {
	case packagesSection:
		value = orEmpty(r.Packages)
	case vulnerabilitiesSection:
		value = orEmpty(r.Vulnerabilities)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	return sanitize.EscapeJSON(o.Out, out.Bytes())
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// writeTables writes the requested tables.
func (o *reportOptions) writeTables(p reportPlan, r api.HostReport) error {
	found := toMatches(r.Vulnerabilities)
	if p.order != 0 {
		slices.SortStableFunc(found, p.order.compare)
	}
	var tables []report.Report
	if o.section != vulnerabilitiesSection {
		tables = append(tables, report.Report{OnlyPackages: true, Packages: sortPackages(r, p.order)})
	}
	if o.section != packagesSection {
		tables = append(tables, report.Report{Matches: found})
	}
	both := len(tables) == 2 && len(r.Packages)+len(found) > 0
	for i, t := range tables {
		if i > 0 && both {
			if _, err := fmt.Fprintln(o.Out); err != nil {
				return err
			}
		}
		if err := report.Write(o.Out, report.Table, []report.Report{t},
			report.Options{Columns: p.columns}); err != nil {
			return err
		}
	}
	return nil
}

// sortPackages returns the packages of a report in an order. The score of a package is that of its worst
// vulnerability.
func sortPackages(r api.HostReport, by sortOrder) []api.ScanPackage {
	type key struct{ kind, name, version string }
	worst := map[key]float64{}
	for _, v := range r.Vulnerabilities {
		k := key{v.Package.Type, v.Package.Name, v.Package.Version}
		worst[k] = max(worst[k], v.Vulnerability.Score)
	}
	rows := make([]api.ScanMatch, len(r.Packages))
	for i, p := range r.Packages {
		rows[i] = api.ScanMatch{
			Artifact:      p.ScanPackage,
			Vulnerability: api.ScanVulnerability{BaseScore: worst[key{p.Type, p.Name, p.Version}]},
		}
	}
	if by != 0 {
		slices.SortStableFunc(rows, by.compare)
	}
	out := make([]api.ScanPackage, len(rows))
	for i, row := range rows {
		out[i] = row.Artifact
	}
	return out
}

// toMatches converts vulnerability entries to those of the other reports.
func toMatches(list []api.HostVulnerability) []api.ScanMatch {
	out := make([]api.ScanMatch, len(list))
	for i, e := range list {
		v, p := e.Vulnerability, e.Package
		m := api.ScanMatch{
			Vulnerability: api.ScanVulnerability{
				ID: v.ID, BaseScore: v.Score, Severity: v.Severity, URL: v.URL,
				FixedVersions: v.FixedVersions, Exploited: v.Exploited, EPSS: v.EPSS, Unconfirmed: v.Unconfirmed,
				DistroPatched: v.DistroPatched,
			},
			Artifact: api.ScanPackage{
				Name: p.Name, Version: p.Version, Type: p.Type, Locations: p.Locations, Language: p.Language,
				Licenses: p.Licenses, CPEs: p.CPEs, PURL: p.PURL, Metadata: p.Metadata,
			},
		}
		for _, r := range v.RelatedVulnerabilities {
			m.Vulnerability.Related = append(m.Vulnerability.Related, r.ID)
		}
		out[i] = m
	}
	return out
}

// toReport converts a report for other programs. One of vulnerabilities includes their packages.
func (o *reportOptions) toReport(r api.HostReport, status api.HostStatus) report.Report {
	name, _ := os.Hostname()
	if o.url != "" {
		name = o.url
	}
	d := report.Report{
		Source: api.ScanSource{Type: "host", Target: name}, Matches: toMatches(r.Vulnerabilities),
		OnlyPackages: o.section == packagesSection,
		Coverage: api.ScanCoverage{
			Volumes: []api.ScanVolume{}, Skipped: []api.ScanSkipped{},
			Unread: []api.ScanUnreadable{}, Odd: []api.ScanUnreadable{}, Hidden: map[string]int{},
		},
	}
	for _, p := range r.Packages {
		d.Packages = append(d.Packages, p.ScanPackage)
	}
	if o.section != packagesSection {
		d.Packages = addMissingPackages(d.Packages, d.Matches)
	}
	if l := status.LastScan; l != nil {
		d.Coverage.Unreads = l.Denied + l.Unread
		d.Coverage.Partial = d.Coverage.Unreads > 0 || l.Cancelled || l.Error != ""
	}
	for _, text := range status.NoAdvisories {
		d.Coverage.NoAdvisories = append(d.Coverage.NoAdvisories, api.ScanNoAdvisories{Message: text})
		d.Coverage.Partial = true
	}
	if b := status.Database.Built; b != nil {
		d.Coverage.Database = &api.ScanDatabase{Built: *b, Sources: []api.ScanDatabaseSource{}}
	}
	return d
}

// addMissingPackages adds the packages of matches that are not listed: they were cataloged before the
// start time of the report.
func addMissingPackages(list []api.ScanPackage, found []api.ScanMatch) []api.ScanPackage {
	type key struct{ kind, name, version, metadata string }
	of := func(p api.ScanPackage) key {
		k := key{kind: p.Type, name: p.Name, version: p.Version}
		if p.Metadata != nil {
			k.metadata = fmt.Sprintf("%+v", *p.Metadata)
		}
		return k
	}
	has := map[key]bool{}
	for _, p := range list {
		has[of(p)] = true
	}
	for _, m := range found {
		if k := of(m.Artifact); !has[k] {
			has[k] = true
			list = append(list, m.Artifact)
		}
	}
	return list
}

// toFindings converts entries to findings, for the decision on failing a build.
func toFindings(list []api.HostVulnerability) []match.Finding {
	out := make([]match.Finding, len(list))
	for i, e := range list {
		v := e.Vulnerability
		out[i].Vulnerability.Exploited, out[i].Unconfirmed = v.Exploited, v.Unconfirmed
		out[i].DistroPatched = v.DistroPatched
		out[i].Vulnerability.Score = vulndb.Score{Base: v.Score, Severity: vulndb.Severity(v.Severity)}
	}
	return out
}
