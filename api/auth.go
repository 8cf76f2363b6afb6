package api

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Routes of the handshake that turns an API key into a session.
const (
	PathHand  = "/tap/v1/hand"
	PathShake = "/tap/v1/shake"
)

// HandRequest requests a secret that only the owner of a key can read: POST /tap/v1/hand. The response is the
// secret, encrypted (RSA-OAEP, SHA-256) and in standard base64, bare.
type HandRequest struct {
	ID string `json:"id"` // of the key
}

// ShakeRequest proves that the client could read the secret: POST /tap/v1/shake. It can be used once.
type ShakeRequest struct {
	ID     string `json:"id"`     // of the API key
	Secret string `json:"secret"` // decrypted secret of the hand call
}

// ShakeAnswer is the answer to a ShakeRequest, without an envelope.
type ShakeAnswer struct {
	ID   string  `json:"id"`   // of the API key
	Data Session `json:"data"` // the session
}

// Session is the credential of a client after a handshake: this object as JSON, in base64, after
// "Authorization: Bearer ".
type Session struct {
	UserName  string `json:"userName"`  // ID of the API key
	SessionID string `json:"sessionId"` // ID of the session
	Token     string `json:"token"`     // signed value that proves the session
}

// Key is an entry of the list of API keys.
type Key struct {
	ID         string    `json:"id"`
	Groups     []string  `json:"groups"`     // permission groups
	Expiration time.Time `json:"expiration"` // when it stops being valid
	Created    time.Time `json:"created"`
}

// NewKey is the parameters of a new API key. The response's body is the private key (base64 of PKCS#1 DER on
// one line) if no public key was given.
type NewKey struct {
	ID        string   `json:"id"`
	TTL       int64    `json:"ttl"`                 // seconds
	Groups    []string `json:"groups"`              // permission groups
	PublicKey string   `json:"publicKey,omitempty"` // base64 of PKIX DER on one line
}

// PermissionText describes the purpose of a permission.
type PermissionText struct {
	Label       string `json:"label"` // short name for people
	Description string `json:"description"`
}

// ResourcePermissions are the rights that exist on a type of resource.
type ResourcePermissions struct {
	ResourceType string                    `json:"resource_type"` // node or template
	Permissions  map[string]PermissionText `json:"permissions"`
}

// Resource is the rights of a permission group on one node or template.
type Resource struct {
	ID          string   `json:"id"`
	IDType      string   `json:"id_type,omitempty"` // "id" by default
	Type        string   `json:"type"`              // node or template
	Permissions []string `json:"permissions"`       // rights on it
}

// String returns a text without the secret.
func (r ShakeRequest) String() string { return "shake of " + r.ID }

// Format prints a text without the secret, whatever the verb.
func (r ShakeRequest) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, r.String()) }

// LogValue keeps the secret out of logs.
func (r ShakeRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String returns a text without the token.
func (s Session) String() string { return "session of " + s.UserName }

// Format prints a text without the token, whatever the verb.
func (s Session) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, s.String()) }

// LogValue keeps the token out of logs.
func (s Session) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns a text without the token.
func (a ShakeAnswer) String() string { return a.Data.String() }

// Format prints a text without the token, whatever the verb.
func (a ShakeAnswer) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, a.String()) }

// LogValue keeps the token out of logs.
func (a ShakeAnswer) LogValue() slog.Value { return slog.StringValue(a.String()) }
