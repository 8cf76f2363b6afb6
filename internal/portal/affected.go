package portal

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// affectedRows is how many versions, nodes and instances the page lists.
const affectedRows = 200

// affectedView is the page of what vulnerabilities affect.
type affectedView struct {
	Text        string // the IDs
	Asked       bool
	Limited     bool // some records are not for the visitor
	Versions    []affectedRow
	Nodes       []affectedRow
	Instances   []api.AffectedInstance
	Totals      [3]int   // of versions, nodes and instances
	Gaps        []string // what may be affected though it is not listed
	CurlCommand string
}

// affectedRow is a vulnerability of a version or a node.
type affectedRow struct {
	api.FoundVulnerability
	Name, Tag, Path, Tone string
	Note                  string // what is special about a version and its scan
}

func (p *portal) affectedPages() []page {
	return []page{{
		pattern: "/affected", templateName: "affected", title: "What a vulnerability affects", buildView: showAffected,
	}}
}

func showAffected(v *visit) (any, error) {
	out := affectedView{Text: strings.TrimSpace(v.query.Get("q")), Limited: v.canDo().isLimited()}
	ids := strings.FieldsFunc(out.Text, func(r rune) bool { return r == ',' || r == ' ' })
	if len(ids) == 0 {
		return out, nil
	}
	got, err := v.Affected(v, ids...)
	if err != nil {
		return nil, err
	}
	out.Asked, out.Totals = true, [3]int{len(got.Versions), len(got.Nodes), len(got.Instances)}
	out.Gaps = gapsOf(got.Gaps)
	out.CurlCommand = curlCommand(v, "GET", api.PathAffected+"?id="+url.QueryEscape(strings.Join(ids, ",")), "")
	for _, s := range got.Versions {
		out.Versions = addAffected(out.Versions, affectedRow{
			Name: cmp.Or(s.TemplateName, format.ShortID(s.TemplateID)), Tag: strings.Join(s.Tags, ", "),
			Path: "/templates/" + s.TemplateID, Note: versionNote(s),
		}, s.Vulnerabilities)
	}
	for _, n := range got.Nodes {
		out.Nodes = addAffected(out.Nodes, affectedRow{
			Name: cmp.Or(n.NodeName, format.ShortID(n.NodeID)), Path: "/nodes/" + n.NodeID,
			Note: nodeNote(n),
		}, n.Vulnerabilities)
	}
	for _, rows := range [][]affectedRow{out.Versions, out.Nodes} {
		slices.SortFunc(rows, func(a, b affectedRow) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Tag, b.Tag), strings.Compare(a.ID, b.ID))
		})
	}
	slices.SortFunc(got.Instances, func(a, b api.AffectedInstance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.InstanceID, b.InstanceID))
	})
	out.Versions = out.Versions[:min(len(out.Versions), affectedRows)]
	out.Nodes = out.Nodes[:min(len(out.Nodes), affectedRows)]
	out.Instances = got.Instances[:min(len(got.Instances), affectedRows)]
	return out, nil
}

// versionNote describes what is special about a version and its scan.
func versionNote(s api.AffectedVersion) string {
	var notes []string
	if s.Removed {
		notes = append(notes, "removed")
	}
	if s.Partial {
		notes = append(notes, "partial scan")
	}
	if s.Truncated {
		notes = append(notes, "list truncated")
	}
	return strings.Join(notes, ", ")
}

// nodeNote describes what is special about the scan of a node.
func nodeNote(n api.AffectedNode) string {
	if n.Truncated {
		return "list truncated"
	}
	return ""
}

// gapsOf describes what may be affected though it is not listed.
func gapsOf(g api.AffectedGaps) (list []string) {
	add := func(n int, what string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: %d", what, n))
		}
	}
	add(g.UnscannedVersions, "versions in use without a scan")
	add(g.UnscannedInstances, "instances of such versions")
	add(g.PartialVersions, "versions scanned in part")
	add(g.TruncatedVersions, "versions with a truncated list")
	add(g.TruncatedNodes, "nodes with a truncated list")
	return list
}

// addAffected adds a row for each vulnerability.
func addAffected(rows []affectedRow, r affectedRow, list []api.FoundVulnerability) []affectedRow {
	for _, found := range list {
		r.FoundVulnerability, r.Tone = found, severityTones[found.Severity]
		rows = append(rows, r)
	}
	return rows
}

// vulnerabilityIDs are how the IDs of vulnerabilities begin that the search recognizes.
var vulnerabilityIDs = []string{"CVE-", "GHSA-", "GO-", "RUSTSEC-", "PYSEC-"}

// isVulnerability reports whether a text of a search is the ID of a vulnerability.
func isVulnerability(text string) bool {
	return !strings.ContainsAny(text, " ,") && len(text) <= api.MaxVulnerabilityBytes &&
		slices.ContainsFunc(vulnerabilityIDs, func(begin string) bool {
			return len(text) > len(begin) && strings.EqualFold(text[:len(begin)], begin)
		})
}
