package auth

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Life of a session, from the handshake on.
const (
	DefaultSessionTTL = 5 * time.Minute
	MaxSessionTTL     = 24 * time.Hour
)

// sessionPurpose is the purpose of the signatures of sessions.
const sessionPurpose Purpose = "session"

// maxBearer bounds the base64 text of a session, in bytes. One takes 300, and with the longest ID
// 500; clients may add their own fields to it.
const maxBearer = 4096

// Sessions are what keys turn into. They are signed values that every replica verifies, and
// are stored nowhere.
type Sessions struct {
	keys   *APIKeys
	signer *Signer
	ttl    time.Duration
}

// NewSessions makes sessions that live for ttl; 0: the default.
func NewSessions(keys *APIKeys, signer *Signer, ttl time.Duration) *Sessions {
	if ttl <= 0 {
		ttl = DefaultSessionTTL
	}
	return &Sessions{keys, signer, min(ttl, MaxSessionTTL)}
}

// Issue creates a session for a caller who has proved possession of the key.
func (s *Sessions) Issue(key farm.APIKey) api.Session {
	var raw [16]byte
	_, _ = rand.Read(raw[:])
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	return api.Session{
		UserName: key.ID, SessionID: id,
		Token: s.signer.Sign(sessionPurpose, nil, key.ID, id, key.Generation),
	}
}

var (
	errBearerForm     = deniedError("the Bearer token is not a session token")
	errSessionKey     = deniedError("the API key of the session was deleted or has expired")
	errSessionExpired = deniedError("the session has expired")
	errSessionForeign = deniedError("the session is from another service, or its API key was created again")
)

// Verify verifies the value after "Bearer ": base64, of either alphabet, of a session as JSON in
// any formatting. The groups are the current ones of the key.
func (s *Sessions) Verify(bearer string) (Identity, error) {
	session, err := parseBearer(bearer)
	if err != nil {
		return Identity{}, err
	}
	key, ok := s.keys.GetUnexpired(session.UserName)
	if !ok {
		return Identity{}, errSessionKey
	}
	_, err = s.signer.Verify(sessionPurpose, session.Token, s.ttl, key.ID, session.SessionID, key.Generation)
	switch {
	case errors.Is(err, ErrSignedTextExpired):
		return Identity{}, errSessionExpired
	case err != nil:
		return Identity{}, errSessionForeign
	}
	return Identity{Name: key.ID, Groups: key.Groups, KeyID: key.ID, Method: ByKey}, nil
}

// parseBearer parses a Bearer value.
func parseBearer(bearer string) (api.Session, error) {
	var session api.Session
	if len(bearer) > maxBearer {
		return session, errBearerForm
	}
	raw, err := decodeBase64(bearer)
	if err != nil || json.Unmarshal(raw, &session) != nil || session.UserName == "" || session.Token == "" {
		return api.Session{}, errBearerForm
	}
	return session, nil
}
