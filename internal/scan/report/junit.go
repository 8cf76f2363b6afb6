package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// junitDocument is JUnit XML as CI systems read it: a suite for each source, a failed test for each vulnerability of a
// package at a path.
type junitDocument struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

func writeJUnit(w io.Writer, reports []Report, o Options) error {
	doc := junitDocument{Name: o.Tool}
	for _, r := range reports {
		s := junitSuiteOf(r, o)
		doc.Tests += s.Tests
		doc.Failures += s.Failures
		doc.Errors += s.Errors
		doc.Suites = append(doc.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// hasUnread reports whether a scan is partial because a part that may have packages could not be read.
func hasUnread(c api.ScanCoverage) bool {
	return c.Unreads > 0 || unreadText(c) != "" || len(c.NoAdvisories) == 0
}

// partialReason returns why a scan is partial.
func partialReason(c api.ScanCoverage) string {
	var reasons []string
	if hasUnread(c) {
		reasons = append(reasons, "files that may contain packages could not be read")
	}
	for _, n := range c.NoAdvisories {
		reasons = append(reasons, n.Message)
	}
	return "scan partial: " + strings.Join(reasons, "; ")
}

func junitSuiteOf(r Report, o Options) junitSuite {
	s := junitSuite{
		Name:      sanitize.EscapeText(r.Source.Type + ":" + r.Source.Target),
		Timestamp: o.Now.UTC().Format(time.RFC3339),
	}
	for _, m := range r.Matches {
		s.Cases = append(s.Cases, junitCaseOf(m))
	}
	if r.Coverage.Partial {
		s.Cases = append(s.Cases, junitCase{Name: "coverage", Class: o.Tool, Error: &junitMessage{
			Message: sanitize.EscapeText(partialReason(r.Coverage)), Text: unreadText(r.Coverage),
		}})
	}
	if len(s.Cases) == 0 {
		s.Cases = []junitCase{{Name: "no vulnerabilities found", Class: o.Tool}}
	}
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	return s
}

// junitCaseOf converts a match. One with a record that was not reviewed, or of a package that may have been
// patched, fails no build.
func junitCaseOf(m api.ScanMatch) junitCase {
	v, p := m.Vulnerability, m.Artifact
	c := junitCase{
		Name:  sanitize.EscapeText("[" + v.Severity + "] " + v.ID),
		Class: sanitize.EscapeText(packageRef(p)),
	}
	if len(p.Locations) > 0 {
		c.File = sanitize.EscapeText(catalog.FileOf(p.Locations[0].Path))
	}
	title := v.Title
	if title == "" {
		title = fmt.Sprintf("%s %s is affected by %s", p.Name, p.Version, v.ID)
	}
	message := &junitMessage{Message: sanitize.EscapeText(title), Type: sanitize.EscapeText(v.Severity)}
	lines := []string{helpText(v)}
	if fix := fixText(m); fix != "" {
		lines = append(lines, fix)
	}
	for _, l := range p.Locations {
		lines = append(lines, l.Path)
	}
	if v.Reachable != "" {
		lines = append(lines, reachableText(v))
	}
	message.Text = sanitize.EscapeLines(strings.Join(lines, "\n"))
	if v.Unconfirmed {
		message.Message = "not reviewed yet: " + message.Message
		c.Skipped = message
		return c
	}
	if v.DistroPatched != "" {
		message.Message = distroPatchedLabel + ": " + v.DistroPatched + ": " + message.Message
		c.Skipped = message
		return c
	}
	c.Failure = message
	return c
}

// unreadText lists what could not be read, one a line.
func unreadText(c api.ScanCoverage) string {
	var lines []string
	for _, s := range c.Skipped {
		if s.Partial {
			lines = append(lines, s.Name+": "+s.Reason)
		}
	}
	for _, u := range c.Unread {
		lines = append(lines, u.Path+": "+u.Reason)
	}
	for i, l := range lines {
		lines[i] = sanitize.EscapeText(l)
	}
	return strings.Join(lines, "\n")
}
