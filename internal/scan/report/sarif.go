package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// distroPatchedLabel names the field that tells whether a distribution may have patched a package.
const distroPatchedLabel = "distro-patched"

// reachableLabel names the field that tells whether a program has the vulnerable code.
const reachableLabel = "reachable"

// Limits of GitHub's code scanning on a SARIF file ("SARIF support for code scanning" of its documentation).
const (
	maxSARIFResults   = 25_000 // of a run; more are refused
	shownSARIFResults = 5_000  // of a run; of more the most severe ones are shown
	maxSARIFLocations = 1_000  // of a result; more are refused
	maxSARIFText      = 1024   // bytes of a description
)

// sarifLevels maps severities to those of SARIF.
var sarifLevels = map[string]string{
	"critical": "error", "high": "error", "medium": "warning", "low": "note", "unknown": "note",
}

// severityFloor are the lowest scores of the severities, for those that a source has without a score.
var severityFloor = map[string]float64{"critical": 9, "high": 7, "medium": 4, "low": 0.1}

func writeSARIF(w io.Writer, reports []Report, o Options) error {
	doc := sarif.NewReport()
	for _, r := range reports {
		doc.AddRun(sarifRun(r, o))
	}
	return doc.PrettyWrite(w)
}

// sarifRun describes one source. A rule is a vulnerability, a result one of a package at a path. Of more results than
// GitHub accepts the most severe ones are written, and the others counted.
func sarifRun(r Report, o Options) *sarif.Run {
	run := sarif.NewRun()
	run.Language = "en-US"
	run.Tool = sarif.NewTool()
	run.Tool.Driver = sarif.NewToolComponent()
	run.Tool.Driver.Name = &o.Tool
	run.Tool.Driver.Version = &o.Version
	// GitHub keeps the results of runs of one file apart by the part before the last slash
	id := o.Tool + "/" + r.Source.Type + ":" + strings.ReplaceAll(r.Source.Target, "/", ":") + "/"
	run.AutomationDetails = sarif.NewRunAutomationDetails().WithID(id)
	run.Properties = sarif.NewPropertyBag().Add("source", r.Source).Add("coverage", r.Coverage)
	success := !r.Coverage.Partial
	run.Invocations = append(run.Invocations, sarif.NewInvocation().WithExecutionSuccessful(success))
	matches := r.Matches
	if len(matches) > shownSARIFResults {
		matches = slices.Clone(matches)
		slices.SortStableFunc(matches, moreSevere)
	}
	if n := len(matches) - maxSARIFResults; n > 0 {
		matches = matches[:maxSARIFResults]
		run.Properties.Add("omittedResults", n)
	}
	rules := map[string]int{}
	for _, m := range matches {
		at, ok := rules[m.Vulnerability.ID]
		if !ok {
			at = len(rules)
			rules[m.Vulnerability.ID] = at
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule(m.Vulnerability))
		}
		run.Results = append(run.Results, sarifResult(m, at))
	}
	return run
}

// severityRank are the severities, the worst first.
var severityRank = []string{"critical", "high", "medium", "low", "unknown"}

// moreSevere orders matches by severity and score, the worst first.
func moreSevere(a, b api.ScanMatch) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severityRank, a.Vulnerability.Severity),
			slices.Index(severityRank, b.Vulnerability.Severity)),
		cmp.Compare(b.Vulnerability.BaseScore, a.Vulnerability.BaseScore))
}

func sarifRule(v api.ScanVulnerability) *sarif.ReportingDescriptor {
	rule := sarif.NewRule(v.ID).WithName(cut(v.ID, 255))
	short := v.ID + ", severity " + v.Severity
	if v.Title != "" {
		short = v.ID + ": " + v.Title
	}
	rule.ShortDescription = multiformat(cut(short, maxSARIFText), "")
	full := cmp.Or(v.Description, v.Title, short)
	rule.FullDescription = multiformat(cut(full, maxSARIFText), "")
	rule.Help = multiformat(helpText(v), helpMarkdown(v))
	if isWebAddress(v.URL) {
		rule.HelpURI = &v.URL
	}
	bag := sarif.NewPropertyBag()
	if s := securitySeverity(v); s != "" {
		bag.Add("security-severity", s)
	}
	bag.AddTag("security").AddTag("vulnerability").AddTag(strings.ToUpper(v.Severity))
	if v.Exploited {
		bag.AddTag("known-exploited")
	}
	rule.Properties = bag
	return rule
}

// securitySeverity returns the score by which GitHub sorts; "" where neither a score nor a severity is known, which is
// not the same as harmless.
func securitySeverity(v api.ScanVulnerability) string {
	score := v.BaseScore
	if score <= 0 {
		score = severityFloor[v.Severity]
	}
	if score <= 0 {
		return ""
	}
	return strconv.FormatFloat(min(score, 10), 'f', 1, 64)
}

func multiformat(text, markdown string) *sarif.MultiformatMessageString {
	m := sarif.NewMultiformatMessageString()
	m.Text = &text
	if markdown != "" {
		m.Markdown = &markdown
	}
	return m
}

// helpFacts returns the fields of a vulnerability that are not empty, with their names.
func helpFacts(v api.ScanVulnerability) [][2]string {
	facts := [][2]string{{"ID", v.ID}, {"Severity", v.Severity}}
	if v.BaseScore > 0 {
		facts = append(facts, [2]string{"Score", strconv.FormatFloat(v.BaseScore, 'f', 1, 64)})
	}
	if v.Vector != "" {
		facts = append(facts, [2]string{"CVSS", v.Vector})
	}
	if v.EPSS > 0 {
		facts = append(facts, [2]string{"EPSS", formatEPSS(api.ScanMatch{Vulnerability: v})})
	}
	if v.Exploited {
		facts = append(facts, [2]string{"Known exploited", "yes"})
	}
	if len(v.Related) > 0 {
		facts = append(facts, [2]string{"Related", strings.Join(v.Related, ", ")})
	}
	return facts
}

func helpText(v api.ScanVulnerability) string {
	var b strings.Builder
	for _, text := range []string{v.Title, v.Description} {
		if text != "" {
			b.WriteString(text + "\n\n")
		}
	}
	for _, f := range helpFacts(v) {
		b.WriteString(f[0] + ": " + f[1] + "\n")
	}
	for _, r := range webAddresses(v) {
		b.WriteString(r + "\n")
	}
	return b.String()
}

func helpMarkdown(v api.ScanVulnerability) string {
	var b strings.Builder
	if v.Title != "" {
		b.WriteString("**" + escapeMarkdown(v.Title) + "**\n\n")
	}
	if v.Description != "" {
		b.WriteString(v.Description + "\n\n")
	}
	b.WriteString("| | |\n|---|---|\n")
	for _, f := range helpFacts(v) {
		b.WriteString("| " + f[0] + " | " + escapeMarkdown(f[1]) + " |\n")
	}
	for i, r := range webAddresses(v) {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("- <" + r + ">\n")
	}
	return b.String()
}

func sarifResult(m api.ScanMatch, rule int) *sarif.Result {
	p := m.Artifact
	text := fmt.Sprintf("%s %s %s is affected by %s", p.Type, p.Name, p.Version, m.Vulnerability.ID)
	if len(m.Vulnerability.FixedVersions) > 0 {
		text += "; fixed in " + strings.Join(m.Vulnerability.FixedVersions, ", ")
	}
	if len(p.Locations) > 0 && catalog.FileOf(p.Locations[0].Path) != p.Locations[0].Path {
		text += "; found in " + p.Locations[0].Path
	}
	if patched := m.Vulnerability.DistroPatched; patched != "" {
		text += "; " + distroPatchedLabel + ": " + patched
	}
	if s := m.Vulnerability.Reachable; s != "" {
		text += "; " + reachableLabel + ": " + s
	}
	res := sarif.NewRuleResult(m.Vulnerability.ID)
	if patched := m.Vulnerability.DistroPatched; patched != "" {
		res.Properties = sarif.NewPropertyBag().Add(distroPatchedLabel, patched)
	}
	if s := m.Vulnerability.Reachable; s != "" {
		if res.Properties == nil {
			res.Properties = sarif.NewPropertyBag()
		}
		res.Properties.Add(reachableLabel, s)
		if list := m.Vulnerability.LinkedFunctions; len(list) > 0 {
			res.Properties.Add("linked-functions", list)
		}
	}
	res.RuleIndex = rule
	res.Level = cmp.Or(sarifLevels[m.Vulnerability.Severity], "note")
	res.Message = sarif.NewTextMessage(text)
	locations := p.Locations[:min(len(p.Locations), maxSARIFLocations)]
	if len(locations) == 0 {
		locations = []api.ScanLocation{{Path: p.Name}} // GitHub refuses a result without one
	}
	res.PartialFingerprints = map[string]string{
		"package/v1": MatchKey(m), "primaryLocationLineHash": matchHash(m, locations[0].Path) + ":1",
	}
	for _, l := range locations {
		place := sarif.NewPhysicalLocation()
		place.ArtifactLocation = sarif.NewSimpleArtifactLocation(relativeURI(catalog.FileOf(l.Path)))
		place.Region = sarif.NewSimpleRegion(1, 1) // GitHub shows a result at a line
		res.AddLocation(sarif.NewLocationWithPhysicalLocation(place))
	}
	return res
}

// matchHash returns 16 hexadecimal digits that identify a vulnerability of a version of a package at a path.
func matchHash(m api.ScanMatch, path string) string {
	sum := sha256.Sum256([]byte(MatchKey(m) + "\x00" + path))
	return hex.EncodeToString(sum[:8])
}

// relativeURI returns a path as a URI relative to the root of what was scanned.
func relativeURI(path string) string {
	return cmp.Or((&url.URL{Path: strings.TrimLeft(path, "/")}).String(), ".")
}
