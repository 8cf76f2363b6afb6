package portal

import (
	"strings"

	"github.com/buildyard/buildyard/client"
)

// credentialUse is how programs use one kind of credential. Values are to be filled in: a page never holds a secret.
type credentialUse struct {
	curl string            // arguments of curl
	cli  string            // arguments of the command line client
	node string            // arguments of buildnode, which takes no tokens of identity providers
	env  map[string]string // settings of that client with the names of secrets in a CI system
	code string            // Go expression of the client package; "": none are needed
}

// credentialUses are the uses by the kind of credential, as the API calls it.
var credentialUses = map[string]credentialUse{
	"": {},
	"root": {
		curl: `-u "root:$BUILDYARD_TOKEN"`, cli: "--token-file root-token", node: "--token-file root-token",
		env:  map[string]string{"SVC_CLIENT_ROOT_TOKEN": "BUILDYARD_TOKEN"},
		code: `client.RootToken(os.Getenv("BUILDYARD_TOKEN"))`,
	},
	"key": { // curl takes the header that the token handshake of the API guide writes
		curl: "-H @session.txt", cli: "--api-key-id USER --api-key-file USER.pem",
		node: "--api-key-id USER --api-key-file USER.pem",
		env: map[string]string{
			"SVC_CLIENT_API_KEY_ID": "BUILDYARD_KEY_ID", "SVC_CLIENT_API_KEY_STRING": "BUILDYARD_KEY",
		},
		code: "key", // see goSnippet
	},
	"oidc": {
		curl: `-H "Authorization: Bearer $BUILDYARD_TOKEN"`, cli: "--bearer-file token",
		env:  map[string]string{"SVC_CLIENT_BEARER": "BUILDYARD_TOKEN"},
		code: `client.Bearer(os.Getenv("BUILDYARD_TOKEN"))`,
	},
	"certificate": {
		curl: "--cert USER.pem --key USER.key", cli: "--client-cert USER.pem --client-key USER.key",
		node: "--client-cert USER.pem --client-key USER.key",
		env:  map[string]string{"SVC_CLIENT_CERT": "BUILDYARD_CERT", "SVC_CLIENT_KEY": "BUILDYARD_CERT_KEY"},
	},
}

// credential returns the kind of the visitor's own credential and their name, "" without authentication. It does
// not use the rights of the page: those are asked once the page knows what it is about.
func (v *visit) credential() (kind, user string) {
	if !v.loginRequired {
		return "", ""
	}
	if v.capabilities == nil {
		if v.ownRights == nil {
			rights, err := v.Rights(v, client.RightsQuery{})
			if err != nil {
				return "root", ""
			}
			v.ownRights = &rights
		}
		return v.ownRights.Credential, v.ownRights.User
	}
	if v.capabilities.rights == nil {
		return "root", ""
	}
	return v.capabilities.rights.Credential, v.capabilities.rights.User
}

// credentialUse returns how programs use the visitor's kind of credential.
func (v *visit) credentialUse() credentialUse {
	kind, user := v.credential()
	use, ok := credentialUses[kind]
	if !ok {
		use = credentialUses["root"]
	}
	if name := fileNameOf(user); name != "" {
		use.curl = strings.ReplaceAll(use.curl, "USER", name)
		use.cli = strings.ReplaceAll(use.cli, "USER", name)
		use.node = strings.ReplaceAll(use.node, "USER", name)
	}
	return use
}

// fileNameOf returns the name of a user where that is a plain word; "" for others.
func fileNameOf(user string) string {
	if strings.HasPrefix(user, "-") || strings.IndexFunc(user, func(c rune) bool { return !isPlain(c, "-_.@") }) >= 0 {
		return ""
	}
	return user
}

// isPlain reports whether a character is a letter, a digit or one of others that a shell does not interpret.
func isPlain(c rune, others string) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(others, c)
}

// curlCommand writes a call of the API as a command that does the same with the visitor's kind of credential.
func curlCommand(v *visit, method, path, body string) string {
	line := "curl -s"
	if use := v.credentialUse().curl; use != "" {
		line += " " + use
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

// shellWord quotes a text for a shell where that is needed.
func shellWord(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return !isPlain(c, "-_./:=,@%+") }) >= 0 || s == "" {
		return shellQuoted(s)
	}
	return s
}
