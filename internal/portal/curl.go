package portal

import (
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/snippet"
)

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

// caller returns the visitor as a program that calls the API.
func (v *visit) caller() snippet.Caller {
	kind, user := v.credential()
	return snippet.NewCaller(controllerURL(v), kind, user)
}

// curlCommand writes a call of the API as a command that does the same with the visitor's kind of credential.
func curlCommand(v *visit, method, path, body string) string {
	return v.caller().Curl(method, path, body)
}

// controllerURL is the address of this controller as the visitor reaches it.
func controllerURL(v *visit) string {
	if v.request.TLS != nil || v.request.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + v.request.Host
	}
	return "http://" + v.request.Host
}
