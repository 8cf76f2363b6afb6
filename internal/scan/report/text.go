package report

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// cut returns at most limit bytes of a text, as valid UTF-8. One that is cut ends with three dots.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("...")], "") + "..."
}

// isWebAddress reports whether a text is the address of a web page.
func isWebAddress(s string) bool {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	return ok && rest != "" && !strings.ContainsAny(s, " \t\r\n<>\"")
}

// webAddresses returns the addresses of the pages about a vulnerability, each once, its own first.
func webAddresses(v api.ScanVulnerability) []string {
	var out []string
	for _, r := range append([]string{v.URL}, v.References...) {
		if isWebAddress(r) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// markdownEscapes are the characters with a meaning in a line or a cell of Markdown.
var markdownEscapes = func() *strings.Replacer {
	pairs := []string{"\n", " ", "\r", " "}
	for _, c := range "\\`*_{}[]()#+!|<>~&" {
		pairs = append(pairs, string(c), "\\"+string(c))
	}
	return strings.NewReplacer(pairs...)
}()

// escapeMarkdown returns a text as it is shown by Markdown, in one line, also in a cell of a table.
func escapeMarkdown(s string) string { return markdownEscapes.Replace(s) }

// fixText names the versions in which a vulnerability is fixed; "" for none.
func fixText(m api.ScanMatch) string {
	if len(m.Vulnerability.FixedVersions) == 0 {
		return ""
	}
	return "Update " + m.Artifact.Name + " to " + strings.Join(m.Vulnerability.FixedVersions, " or ")
}

// reachableText tells whether a program has the vulnerable code, and which.
func reachableText(v api.ScanVulnerability) string {
	text := reachableLabel + ": " + v.Reachable
	if len(v.LinkedFunctions) > 0 {
		text += " (" + strings.Join(v.LinkedFunctions, ", ") + ")"
	}
	return text
}
