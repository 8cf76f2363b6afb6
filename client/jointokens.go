package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

// JoinToken is a new join token. Its secret is redacted when it is printed, encoded or logged.
type JoinToken struct {
	redacted

	Info api.JoinToken // without the secret
}

// Reveal returns the secret.
func (t JoinToken) Reveal() string { return t.reveal() }

// JoinTokens returns the join tokens of the cloud, without their secrets.
func (c *Controller) JoinTokens(ctx context.Context) ([]api.JoinToken, error) {
	return fetch[[]api.JoinToken](ctx, c.service, get(api.PathJoinTokens, nil))
}

// CreateJoinToken creates a join token. The controller does not store its secret: a caller that loses it must
// create another token.
func (c *Controller) CreateJoinToken(ctx context.Context, t api.CreateJoinToken) (JoinToken, error) {
	got, err := fetch[api.JoinToken](ctx, c.service, call{method: http.MethodPost, path: api.PathJoinTokens, body: t})
	secret := got.Token
	got.Token = ""
	return JoinToken{redacted: hide(secret), Info: got}, err
}

// RevokeJoinToken makes a join token invalid. Nodes that have joined with it stay.
func (c *Controller) RevokeJoinToken(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: api.PathJoinTokens, query: byID(id)}, nil)
}
