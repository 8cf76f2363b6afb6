package portal

import "strings"

// curl writes a call of the API as a command that does the same. Where callers have to log in,
// the credential is to be filled in: a page never holds one.
func curl(v *visit, method, path, body string) string {
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
	return line + " " + shellQuoted(origin(v)+path)
}

// origin is the address of this controller as the visitor reaches it.
func origin(v *visit) string {
	if v.r.TLS != nil || v.r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + v.r.Host
	}
	return "http://" + v.r.Host
}

// shellQuoted is a text as one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
