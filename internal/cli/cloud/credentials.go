package cloud

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// Caller is the identity of a command. The zero value is an unauthenticated caller.
type Caller struct {
	credentialName string // as used in errors
	rejectionHint  string // what to check when it is rejected
	expiresAt      time.Time
}

// credentialKinds are the kinds of credentials with their settings.
var credentialKinds = []struct {
	keys []string
	make func(v *config.Values) (client.Credentials, Caller, error)
}{
	{[]string{config.RootToken}, rootToken},
	{[]string{config.ClientKeyID, config.ClientKeyString}, apiKey},
	{[]string{config.ClientBearer}, bearerToken},
}

// originRank orders origins by precedence: flags before environment before file.
var originRank = map[config.Origin]int{config.FromFlag: 3, config.FromEnv: 2, config.FromFile: 1}

// credentials returns the credentials of a command in addition to a certificate, and their caller.
// Of several the one with the highest precedence is used.
func credentials(v *config.Values) (creds client.Credentials, as Caller, err error) {
	best, chosen := 0, []int(nil)
	for i, way := range credentialKinds {
		at := 0
		for _, key := range way.keys {
			if v.String(key) != "" {
				at = max(at, originRank[v.Origin(key)])
			}
		}
		switch {
		case at > best:
			best, chosen = at, []int{i}
		case at > 0 && at == best:
			chosen = append(chosen, i)
		}
	}
	switch len(chosen) {
	case 0:
		if v.String(config.ClientCert) != "" {
			as = Caller{
				credentialName: "the certificate of " +
					v.String(config.ClientCert),
				rejectionHint: "check that the service accepts client certificates and trusts its CA",
			}
		}
		return nil, as, nil
	case 1:
		return credentialKinds[chosen[0]].make(v)
	}
	return nil, as, errors.New("--root-token, --api-key-id and --bearer are mutually exclusive")
}

func rootToken(v *config.Values) (client.Credentials, Caller, error) {
	return client.RootToken(v.String(config.RootToken)),
		Caller{credentialName: "the root user", rejectionHint: "check that the root token is that of this service"}, nil
}

func bearerToken(v *config.Values) (client.Credentials, Caller, error) {
	value := strings.TrimSpace(v.String(config.ClientBearer))
	as := Caller{
		credentialName: "the holder of the token", rejectionHint: "check the provider and the audience of the token",
		expiresAt: tokenExpiry(value),
	}
	return client.Bearer(value), as, nil
}

func apiKey(v *config.Values) (client.Credentials, Caller, error) {
	id := v.String(config.ClientKeyID)
	switch {
	case id == "":
		return nil, Caller{}, errors.New("an API key requires its ID: set --api-key-id")
	case v.String(config.ClientKeyString) == "":
		return nil, Caller{}, errors.New("an API key requires its private key: set --api-key-file")
	}
	key, err := client.ParseAPIKey(id, v.String(config.ClientKeyString))
	if err != nil {
		return nil, Caller{}, err
	}
	return key,
		Caller{
			credentialName: key.String(),
			rejectionHint:  "check that it still exists and that all replicas share their keys",
		},
		nil
}

// tokenExpiry returns when a token (JWT) expires; the zero time when it has no expiry. Nothing of it is
// trusted: it only improves the error.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Exp <= 0 || claims.Exp > 1e11 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}

// checkPrivateKeyFile checks that the key file of a certificate is private.
func checkPrivateKeyFile(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read client certificate: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := config.CheckPrivate(f); err != nil {
		return fmt.Errorf("read client certificate: %s: %w", file, err)
	}
	return nil
}

// unauthenticated adds advice to the error of a service that does not know the caller.
func (c Caller) unauthenticated(e *client.Error, err error) error {
	switch {
	case e.OfHandshake():
		return err // it is complete
	case c.credentialName == "":
		return fmt.Errorf(
			"%w: set the root token (%s, or --token-file), an API key (--api-key-id and --api-key-file) or "+
				"a certificate "+
				"(--client-cert)", err, config.RootToken)
	case !c.expiresAt.IsZero() && time.Now().After(c.expiresAt):
		return fmt.Errorf("%w: the token expired at %s", err, c.expiresAt.Local().Format(time.DateTime))
	}
	return fmt.Errorf("%w: %s is unknown to the service; %s", err, c.credentialName, c.rejectionHint)
}

// forbidden adds the caller to the error about a missing permission.
func (c Caller) forbidden(err error) error {
	if c.credentialName == "" {
		return err
	}
	return fmt.Errorf("%w (authenticated as %s)", err, cli.EscapeName(c.credentialName))
}
