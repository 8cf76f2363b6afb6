package snippet

import "strings"

// use is how programs use one kind of credential. Values are to be filled in: a page never holds a secret.
type use struct {
	curl string            // arguments of curl
	cli  string            // arguments of the command line client
	node string            // arguments of buildnode, which takes no tokens of identity providers
	env  map[string]string // settings of that client with the names of secrets in a CI system
	code string            // Go expression of the client package; "": none are needed
}

// Caller is a program that calls the API with one kind of credential.
type Caller struct {
	url  string // of the controller
	kind string // of the credential, as the API calls it; "": none is needed
	use  use
}

// NewCaller returns the caller of a controller. user is the name of the visitor whose credential it uses.
func NewCaller(url, kind, user string) Caller {
	u, ok := uses[kind]
	if !ok {
		u = uses["root"]
	}
	if name := fileNameOf(user); name != "" {
		u.curl = strings.ReplaceAll(u.curl, "USER", name)
		u.cli = strings.ReplaceAll(u.cli, "USER", name)
		u.node = strings.ReplaceAll(u.node, "USER", name)
	}
	return Caller{url, kind, u}
}

// ClientFlags returns the arguments of the command line client for the credential.
func (c Caller) ClientFlags() string { return c.use.cli }

// NodeFlags returns the arguments of buildnode for the credential; "": it needs none, or takes none of this kind.
func (c Caller) NodeFlags() string { return c.use.node }

// Curl writes a call of the API as a command. body is JSON; "": none.
func (c Caller) Curl(method, path, body string) string {
	line := "curl -s"
	if c.use.curl != "" {
		line += " " + c.use.curl
	}
	if method != "GET" {
		line += " -X " + method
	}
	if body != "" {
		line += " -H 'Content-Type: application/json' -d " + Quoted(body)
	}
	return line + " " + Quoted(c.url+path)
}

// uses are the uses by the kind of credential, as the API calls it.
var uses = map[string]use{
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
		code: "key", // see goCode
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

// Quoted returns a text as one word of a shell.
func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Word quotes a text for a shell where that is needed.
func Word(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return !isPlain(c, "-_./:=,@%+") }) >= 0 || s == "" {
		return Quoted(s)
	}
	return s
}
