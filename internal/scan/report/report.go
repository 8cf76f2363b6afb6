package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
)

// Report is the result of scanning one source.
type Report struct {
	Source   api.ScanSource
	Packages []api.ScanPackage // sorted by name, each once
	Matches  []api.ScanMatch   // sorted by package name
	Coverage api.ScanCoverage

	// OnlyPackages reports that no package was matched: the report is the list of packages.
	OnlyPackages bool
}

// Options are what a writer needs in addition to the report.
type Options struct {
	Columns       []Column  // of a table; nil: those of the specification
	Tool          string    // name of the program
	Version       string    // of the program
	Now           time.Time // creation time of the document
	WholeRegistry bool      // the reports are those of a whole registry, however many

	Template *template.Template // of the format template, from ParseTemplate
	Stop     func() error       // why the execution of a template must end; nil: nothing does
}

// Format is a format of reports.
type Format string

// The formats.
const (
	Table     Format = "table"
	JSON      Format = "json"
	SARIF     Format = "sarif"
	CycloneDX Format = "cyclonedx"
	SPDX      Format = "spdx"
	GitLab    Format = "gitlab"
	JUnit     Format = "junit"
	Template  Format = "template"
)

// Formats lists them; human-readable ones first.
var Formats = []Format{Table, JSON, SARIF, CycloneDX, SPDX, GitLab, JUnit, Template}

// ParseFormat parses the name of a format.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); slices.Contains(Formats, f) {
		return f, nil
	}
	names := make([]string, len(Formats))
	for i, f := range Formats {
		names[i] = string(f)
	}
	return "", fmt.Errorf("invalid report format %q: want one of %s", name, strings.Join(names, ", "))
}

// HasOneSource reports whether a document of the format describes one source only.
func (f Format) HasOneSource() bool { return f == CycloneDX || f == SPDX || f == GitLab }

// HasPackages reports whether the format has packages without vulnerabilities.
func (f Format) HasPackages() bool { return f != SARIF && f != GitLab && f != JUnit }

// textWriters has a writer for each format that is not JSON. They replace control characters themselves.
var textWriters = map[Format]func(io.Writer, []Report, Options) error{
	Table:    writeTables,
	JUnit:    writeJUnit,
	Template: writeTemplate,
}

// writers has a writer for each JSON-based format. JSON and SARIF can have several reports; a bill
// of materials has one.
var writers = map[Format]func(io.Writer, []Report, Options) error{
	JSON:      writeJSON,
	SARIF:     writeSARIF,
	CycloneDX: singleReport(CycloneDX, writeCycloneDX),
	SPDX:      singleReport(SPDX, writeSPDX),
	GitLab:    singleReport(GitLab, writeGitLab),
}

// Write writes the reports of one or several sources in a format. Names with terminal control
// characters are sanitized: in JSON these are escaped and keep their meaning.
func Write(w io.Writer, f Format, reports []Report, o Options) error {
	if write, ok := textWriters[f]; ok {
		return write(w, reports, o)
	}
	var text bytes.Buffer
	if err := writers[f](&text, reports, o); err != nil {
		return err
	}
	return sanitize.EscapeJSON(w, text.Bytes())
}

// singleReport converts a writer of a single report to one of several.
func singleReport(f Format, write func(io.Writer, Report, Options) error) func(io.Writer, []Report, Options) error {
	return func(w io.Writer, reports []Report, o Options) error {
		if len(reports) != 1 {
			return fmt.Errorf(
				"a report in the format %s has one source, but %d were given: scan them one by one", f,
				len(reports))
		}
		return write(w, reports[0], o)
	}
}

// multiReport is the JSON form of the reports of a registry.
type multiReport struct {
	Source  api.ScanSource `json:"source"`
	Reports []any          `json:"reports"`
}

func writeJSON(w io.Writer, reports []Report, o Options) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if !o.WholeRegistry {
		return e.Encode(reports[0].jsonDocument())
	}
	all := multiReport{Source: api.ScanSource{Type: "registry_template", Target: "*"}, Reports: []any{}}
	for _, r := range reports {
		all.Reports = append(all.Reports, r.jsonDocument())
	}
	return e.Encode(all)
}

// jsonDocument is the JSON form of a report.
func (r Report) jsonDocument() any {
	if r.OnlyPackages {
		return api.ScanPackages{Packages: orEmpty(r.Packages), Source: r.Source, Coverage: &r.Coverage}
	}
	return r.ToAPI()
}

// ToAPI converts the report to its ToAPI type.
func (r Report) ToAPI() api.ScanReport {
	return api.ScanReport{Matches: orEmpty(r.Matches), Source: r.Source, Coverage: &r.Coverage}
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
