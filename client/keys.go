package client

import (
	"context"
	"net/http"

	"github.com/buildyard/buildyard/api"
)

// pathKeys is the path of a service's API keys, which only the root user may manage.
func (s *service) pathKeys() string {
	if s.kind == kindRegistry {
		return "/v1/apikey"
	}
	return "/api/v1/apikey"
}

// PrivateKey is the private half of an API key as the API returns it: a line of base64. It is redacted when it
// is printed, encoded or logged.
type PrivateKey struct{ redacted }

// Reveal returns the text; "" when the service has made none.
func (p PrivateKey) Reveal() string { return p.reveal() }

// Keys returns the API keys of the service, including recently expired ones.
func (s *service) Keys(ctx context.Context) ([]api.Key, error) {
	return fetch[[]api.Key](ctx, s, get(s.pathKeys(), nil))
}

// Key returns one API key.
func (s *service) Key(ctx context.Context, id string) (api.Key, error) {
	list, err := one[[]api.Key](ctx, s, s.pathKeys(), id)
	if err != nil {
		return api.Key{}, err
	}
	if len(list) == 0 {
		return api.Key{},
			&Error{
				Code: ErrNotFound, Message: notFound, Status: http.StatusOK, Method: http.MethodGet,
				Path: s.pathKeys(),
			}
	}
	return list[0], nil
}

// CreateKey creates an API key. Without a public key the service makes a key pair and returns the private key,
// which it does not store: a caller that loses it must create another key.
func (s *service) CreateKey(ctx context.Context, k api.NewKey) (PrivateKey, error) {
	text, err := fetch[string](ctx, s, call{method: http.MethodPost, path: s.pathKeys(), body: k})
	return PrivateKey{hide(text)}, err
}

// KeyChange describes the changes of an API key.
type KeyChange struct {
	ID     string   `json:"id"`
	TTL    int64    `json:"ttl,omitempty"` // seconds from now; 0: unchanged
	Groups []string `json:"groups"`        // replaces all of them; a controller requires them
}

// UpdateKey changes an API key. Its sessions continue with the new rights.
func (s *service) UpdateKey(ctx context.Context, k KeyChange) error {
	return s.do(ctx, call{method: http.MethodPut, path: s.pathKeys(), body: k, again: true}, nil)
}

// DeleteKey removes an API key and ends its sessions.
func (s *service) DeleteKey(ctx context.Context, id string) error {
	return s.do(ctx, call{method: http.MethodDelete, path: s.pathKeys(), query: byID(id)}, nil)
}
