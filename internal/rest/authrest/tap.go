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
		{
			Pattern: "POST " +
				api.PathHand, Permission: rest.NoCredential, Frequent: true, DecodesBody: true, MaxBody: maxTap,
			Handle: s.hand,
		},
		{
			Pattern: "POST " +
				api.PathShake, Permission: rest.NoCredential, Frequent: true, DecodesBody: true, MaxBody: maxTap,
			Handle: s.shake,
		},
	}
}

// hand returns the bare base64 text of the secret, encrypted. It answers for unknown keys too, so that a client
// cannot learn which keys exist.
func (s *server) hand(r *rest.Request) (any, error) {
	in, err := auth.ParseHand(r.Params.RawBody())
	if err != nil {
		return nil, err
	}
	s.waitForKey(r.Context(), in.ID)
	text, err := s.opts.Handshake.Hand(in.ID)
	if err != nil {
		return nil, err
	}
	return rest.NoEnvelope{Type: "text/plain; charset=utf-8", Text: []byte(text)}, nil
}

// shake returns a session, bare.
func (s *server) shake(r *rest.Request) (any, error) {
	in, err := auth.ParseShake(r.Params.RawBody())
	if err != nil {
		return nil, err
	}
	answer, err := s.opts.Handshake.Shake(r.Context(), in, rest.CallerOf(r.Context()).Address)
	if err != nil {
		s.auditAttempt(r, in.ID)
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return rest.NoEnvelope{Type: "application/json", Text: text}, nil
}

// auditAttempt records for the audit whose key a handshake has failed for. An unknown ID is not recorded: it may be a
// misplaced secret.
func (s *server) auditAttempt(r *rest.Request, id string) {
	if _, err := s.opts.Keys.Get(id); err == nil {
		rest.AuditIdentity(r.Request, auth.Identity{KeyID: id})
	}
}
