package auth

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// maxGroups bounds the groups of one caller, which every check of a permission goes
// through.
const maxGroups = 1000

// Authenticator identifies the caller of a request. Nil fields disable their kind of credential.
type Authenticator struct {
	Root           *RootToken
	Sessions       *Sessions
	Logins         *LoginCookies   // of browsers
	RegistryTokens *RegistryTokens // of nodes
	// Certificate returns the user of a request's client certificate; ok is false without one.
	Certificate func(r *http.Request) (name string, groups []string, ok bool, err error)
	// JWT verifies a Bearer value that is a token of the identity provider.
	JWT func(ctx context.Context, token string) (name string, groups []string, err error)
}

var (
	errNoCredentials = deniedError("the request has no credentials")
	errScheme        = deniedError("the credentials are of an unknown or disabled kind")
	errTwoHeaders    = deniedError("the request has more than one Authorization header")
	errUserName      = deniedError("the user name of the credentials is invalid")
)

// Schemes returns the kinds of credentials that are accepted in the header Authorization.
func (a *Authenticator) Schemes() (out []string) {
	if a.Root != nil {
		out = append(out, "Basic")
	}
	if a.Sessions != nil || a.JWT != nil || a.RegistryTokens != nil {
		out = append(out, "Bearer")
	}
	return out
}

// Identify returns the caller of a request. The header Authorization decides when there is one,
// then a browser's login: they always take precedence over a certificate.
func (a *Authenticator) Identify(r *http.Request) (Identity, error) {
	given := r.Header["Authorization"]
	switch {
	case len(given) > 1:
		return Identity{}, errTwoHeaders
	case len(given) == 1:
		return a.identifyHeader(r.Context(), given[0])
	}
	if a.Logins != nil {
		if who, ok, err := a.Logins.identify(r); ok || err != nil {
			return who, err
		}
	}
	if a.Certificate == nil {
		return Identity{}, errNoCredentials
	}
	name, groups, ok, err := a.Certificate(r)
	switch {
	case err != nil:
		return Identity{}, asRefusal(err)
	case !ok:
		return Identity{}, errNoCredentials
	}
	return externalIdentity(name, groups, ByCertificate)
}

// Revalidate returns the identity of the caller of a long-running request that was admitted as was.
// Its credential may not have been revoked since then; but an expired session stays valid as long
// as its API key, since the caller of a running request cannot present another.
func (a *Authenticator) Revalidate(r *http.Request, was Identity) (Identity, error) {
	who, err := a.Identify(r)
	if !errors.Is(err, errSessionExpired) {
		return who, err
	}
	key, live := a.Sessions.keys.GetUnexpired(was.KeyID)
	if !live {
		return Identity{}, errSessionKey
	}
	was.Groups = key.Groups
	return was, nil
}

// identifyHeader verifies the value of the header Authorization.
func (a *Authenticator) identifyHeader(ctx context.Context, header string) (Identity, error) {
	scheme, value, _ := strings.Cut(strings.TrimSpace(header), " ")
	value = strings.TrimLeft(value, " ")
	switch {
	case strings.EqualFold(scheme, "Basic") && a.Root != nil:
		return a.Root.Verify(value)
	case !strings.EqualFold(scheme, "Bearer"):
		return Identity{}, errScheme
	case strings.HasPrefix(value, registryTokenPrefix) && a.RegistryTokens != nil:
		return a.RegistryTokens.Verify(value)
	case strings.Contains(value, ".") && a.JWT != nil: // no base64 has a dot
		name, groups, err := a.JWT(ctx, value)
		if err != nil {
			return Identity{}, asRefusal(err)
		}
		return externalIdentity(name, groups, ByOIDC)
	case a.Sessions != nil:
		return a.Sessions.Verify(value)
	}
	return Identity{}, errScheme
}

// LocalIdentity returns the identity of a caller of the loopback port: the user on whose behalf the call is
// made, or "" for the program itself.
func LocalIdentity(name string, groups []string) (Identity, error) {
	if name == "" && len(groups) == 0 {
		return Identity{Method: ByLocal}, nil
	}
	return externalIdentity(name, groups, ByLocal)
}

// externalIdentity makes the identity of a user that an authority outside has named. None can name
// the root user.
func externalIdentity(name string, groups []string, by Method) (Identity, error) {
	if !isValidName(name) || strings.EqualFold(name, RootName) || len(groups) > maxGroups {
		return Identity{}, errUserName
	}
	return Identity{Name: name, Groups: groups, Method: by}, nil
}

// asRefusal converts another package's error about credentials into a refusal, unless it could not
// check them.
func asRefusal(err error) error {
	if e, ok := errors.AsType[*farm.Error](err); ok && e.Code == farm.CodeUnavailable {
		return err
	}
	return &farm.Error{Code: farm.CodeUnauthenticated, Message: errScheme.Message, Err: err}
}
