package portal

import "strings"

// curl writes a call of the API as a command that does the same. Where callers have to log in,
// the credential is to be filled in: a page never holds one.
func curl(v *visit, method, path, body string) string {
	scheme := "http://"
	if v.r.TLS != nil || v.r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https://"
	}
	line := "curl -s"
	if v.guarded {
		line += ` -u "root:$BUILDYARD_TOKEN"`
	}
	if method != "GET" {
		line += " -X " + method
	}
	if body != "" {
		line += " -H 'Content-Type: application/json' -d " + shellQuoted(body)
	}
	return line + " " + shellQuoted(scheme+v.r.Host+path)
}

// shellQuoted is a text as one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
