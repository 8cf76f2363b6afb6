package report

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/buildyard/buildyard/api"
)

// distroPatchedLabel names the field that tells whether a distribution may have patched a package.
const distroPatchedLabel = "distro-patched"

// sarifLevels maps severities to those of SARIF.
var sarifLevels = map[string]string{
	"critical": "error", "high": "error", "medium": "warning", "low": "note", "unknown": "note",
}

func writeSARIF(w io.Writer, reports []Report, o Options) error {
	doc := sarif.NewReport()
	for _, r := range reports {
		doc.AddRun(sarifRun(r, o))
	}
	return doc.PrettyWrite(w)
}

// sarifRun describes one source. A rule is a vulnerability, a result one of a package at a path.
func sarifRun(r Report, o Options) *sarif.Run {
	run := sarif.NewRun()
	run.Language = "en-US"
	run.Tool = sarif.NewTool()
	run.Tool.Driver = sarif.NewToolComponent()
	run.Tool.Driver.Name = &o.Tool
	run.Tool.Driver.Version = &o.Version
	run.Properties = sarif.NewPropertyBag().Add("source", r.Source).Add("coverage", r.Coverage)
	success := !r.Coverage.Partial
	run.Invocations = append(run.Invocations, sarif.NewInvocation().WithExecutionSuccessful(success))
	rules := map[string]int{}
	for _, m := range r.Matches {
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

func sarifRule(v api.ScanVulnerability) *sarif.ReportingDescriptor {
	rule := sarif.NewRule(v.ID).WithName(v.ID)
	text := v.ID + ", severity " + v.Severity
	rule.ShortDescription = sarif.NewMultiformatMessageString()
	rule.ShortDescription.Text = &text
	if v.URL != "" {
		rule.HelpURI = &v.URL
	}
	bag := sarif.NewPropertyBag()
	if v.BaseScore > 0 { // an unknown score is not the lowest one
		bag.Add("security-severity", strconv.FormatFloat(v.BaseScore, 'f', 1, 64))
	}
	rule.Properties = bag.AddTag("security").AddTag("vulnerability")
	return rule
}

func sarifResult(m api.ScanMatch, rule int) *sarif.Result {
	p := m.Artifact
	text := fmt.Sprintf("%s %s %s is affected by %s", p.Type, p.Name, p.Version, m.Vulnerability.ID)
	if len(m.Vulnerability.FixedVersions) > 0 {
		text += "; fixed in " + strings.Join(m.Vulnerability.FixedVersions, ", ")
	}
	if patched := m.Vulnerability.DistroPatched; patched != "" {
		text += "; " + distroPatchedLabel + ": " + patched
	}
	res := sarif.NewRuleResult(m.Vulnerability.ID)
	if patched := m.Vulnerability.DistroPatched; patched != "" {
		res.Properties = sarif.NewPropertyBag().Add(distroPatchedLabel, patched)
	}
	res.RuleIndex = rule
	res.Level = sarifLevels[m.Vulnerability.Severity]
	res.Message = sarif.NewTextMessage(text)
	res.PartialFingerprints = map[string]string{"package/v1": MatchKey(m)}
	for _, l := range p.Locations {
		place := sarif.NewPhysicalLocation()
		place.ArtifactLocation = sarif.NewSimpleArtifactLocation(
			(&url.URL{Path: strings.TrimPrefix(l.Path, "/")}).String())
		res.AddLocation(sarif.NewLocationWithPhysicalLocation(place))
	}
	return res
}
