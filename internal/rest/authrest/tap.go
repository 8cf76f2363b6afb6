package authrest

import (
	"encoding/json"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxTap bounds the body of a hand or shake, in bytes.
const maxTap = 16 << 10

// tapRoutes returns the routes of the handshake that turns an API key into a session. One plugin makes a
// handshake before every request.
func (s *server) tapRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "POST " +
			api.PathHand, Permission: rest.Open, Steady: true, Typed: true, MaxBody: maxTap, Do: s.hand},
		{Pattern: "POST " +
			api.PathShake, Permission: rest.Open, Steady: true, Typed: true, MaxBody: maxTap, Do: s.shake},
	}
}

// hand returns the bare base64 text of the secret, encrypted. It answers for unknown keys too, so that a client
// cannot learn which keys exist.
func (s *server) hand(r *rest.Request) (any, error) {
	in, err := auth.ParseHand(r.Params.Raw())
	if err != nil {
		return nil, err
	}
	s.learn(r.Context(), in.ID)
	text, err := s.o.Tap.Hand(in.ID)
	if err != nil {
		return nil, err
	}
	return rest.NoEnvelope{Type: "text/plain; charset=utf-8", Text: []byte(text)}, nil
}

// shake returns a session, bare.
func (s *server) shake(r *rest.Request) (any, error) {
	in, err := auth.ParseShake(r.Params.Raw())
	if err != nil {
		return nil, err
	}
	answer, err := s.o.Tap.Shake(r.Context(), in, rest.CallerOf(r.Context()).Address)
	if err != nil {
		s.tried(r, in.ID)
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return rest.NoEnvelope{Type: "application/json", Text: text}, nil
}

// tried records for the audit whose key a handshake has failed for. An unknown ID is not recorded: it may be a
// misplaced secret.
func (s *server) tried(r *rest.Request, id string) {
	if _, err := s.o.Keys.Get(id); err == nil {
		rest.AuditIdentity(r.Request, auth.Identity{KeyID: id})
	}
}
