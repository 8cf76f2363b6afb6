package logs

import (
	"regexp"
)

// redactedMask stands for a secret.
const redactedMask = "********"

// secretPatterns are patterns of secrets in a line of a log. No line should contain any; lines that leave
// the machine are checked once more.
var secretPatterns = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{
		regexp.MustCompile(
			`(?i)("[a-z0-9_.-]*(?:token|password|passwd|secret|credential|authorization|cookie|private_?key|api_?key)[a-z0-9_.-]*"\s*:\s*)"(?:[^"\\]|\\.)*"`), `${1}"` + redactedMask + `"`,
	},
	{regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[a-z0-9+/_=.~-]{16,}`), "${1}${2}" + redactedMask},
	{regexp.MustCompile(`://[^/\s"@]+@`), "://" + redactedMask + "@"},
	{regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY)-----.*?(-----END [A-Z ]*-----|$)`), "${1} " +
		redactedMask},
}

// Redact masks substrings of a log line that look like secrets.
func Redact(text string) string {
	for _, s := range secretPatterns {
		text = s.pattern.ReplaceAllString(text, s.with)
	}
	return text
}
