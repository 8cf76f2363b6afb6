package supportbundle

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/logs"
)

// mask stands for a secret.
const mask = "********"

// minSecretBytes is the length from which a known secret is masked: shorter ones are parts of ordinary words.
const minSecretBytes = 4

// masker masks known secrets, and what looks like one.
type masker struct{ known *strings.Replacer }

// newMasker returns a masker of secrets in the forms that texts have them in.
func newMasker(secrets []string) *masker {
	var forms []string
	for _, secret := range secrets {
		if secret = strings.TrimSpace(secret); len(secret) >= minSecretBytes {
			forms = append(forms, formsOf(secret)...)
			for line := range strings.Lines(secret) { // of a private key
				if line = strings.TrimSpace(line); len(line) > 16 {
					forms = append(forms, line)
				}
			}
		}
	}
	// A replacer prefers the first of several that fit: the longest form must be first.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, mask)
	}
	return &masker{strings.NewReplacer(pairs...)}
}

// formsOf returns a secret as it is in texts, JSON, URLs and credentials of HTTP.
func formsOf(secret string) []string {
	quoted, _ := json.Marshal(secret) // a string always marshals
	plain := []string{
		secret, string(quoted[1 : len(quoted)-1]), url.QueryEscape(secret), url.PathEscape(secret),
	}
	for _, user := range []string{"", ":", "root:"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(user + secret))
		plain = append(plain, strings.TrimRight(encoded, "="))
	}
	return plain
}

// mask returns a text without secrets.
func (m *masker) mask(text []byte) []byte {
	return []byte(logs.Redact(m.known.Replace(string(text))))
}
