package portal

import "strings"

// curlCommand writes a call of the API as a command that does the same. Where callers have to log in,
// the credential is to be filled in: a page never holds one.
func curlCommand(v *visit, method, path, body string) string {
	line := "curl -s"
	if v.loginRequired {
		line += ` -u "root:$BUILDYARD_TOKEN"`
	}
	if method != "GET" {
		line += " -X " + method
	}
	if body != "" {
		line += " -H 'Content-Type: application/json' -d " + shellQuoted(body)
	}
	return line + " " + shellQuoted(controllerURL(v)+path)
}

// controllerURL is the address of this controller as the visitor reaches it.
func controllerURL(v *visit) string {
	if v.request.TLS != nil || v.request.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + v.request.Host
	}
	return "http://" + v.request.Host
}

// shellQuoted is a text as one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
