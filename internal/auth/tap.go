package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// SecretTTL is how long the secret of a hand is good.
const SecretTTL = 3 * time.Minute

// handPurpose is the purpose of the signatures in secrets.
const handPurpose Purpose = "tap"

// A secret is the time it was made at in seconds, a random number, and the beginning of a signature
// over both, the key and its generation: 20 bytes, 27 URL-safe characters.
const (
	secretTimeBytes  = 4
	secretHeadBytes  = secretTimeBytes + 6
	secretBytes      = secretHeadBytes + 10
	secretTextLength = 27 // characters
)

// handText is the base64 of secrets. One text stands for one secret.
var handText = base64.RawURLEncoding.Strict()

// TAP is the token authentication protocol: a hand returns a secret that only the holder of the key
// can read, a shake that presents it returns a session. A hand stores nothing, so that any replica
// can accept the shake.
type TAP struct {
	keys     *APIKeys
	sessions *Sessions
	nonces   NonceStore
	failures FailureLimiter
}

// NewTAP returns a TAP for the keys of sessions; marks remembers the used secrets.
func NewTAP(s *Sessions, marks NonceStore) *TAP {
	return &TAP{keys: s.keys, sessions: s, nonces: marks}
}

var (
	errHandKey     = deniedError("the API key does not exist or has expired")
	errShakeSecret = deniedError("the nonce is wrong, or the API key was created again")
	errShakeLate   = deniedError("the nonce has expired")
	errShakeUsed   = deniedError("the nonce was already used")
	errLoginUsed   = deniedError("the session was already used to log in")
)

// Hand returns the encrypted secret for a key, in standard base64. For an unknown ID, or one of an
// expired key, it returns a text that cannot be decrypted: a caller without the key cannot tell
// whether it exists.
func (t *TAP) Hand(id string) (string, error) {
	key, ok := t.keys.GetUnexpired(id)
	if !ok {
		key = farm.APIKey{ID: id}
		return encrypt(t.decoyKey(id), t.newSecret(key, time.Now()))
	}
	public, err := t.keys.publicKeyOf(key)
	if err != nil {
		return "", err
	}
	return encrypt(public, t.newSecret(key, time.Now()))
}

// Shake returns a session for a secret of Hand, once.
func (t *TAP) Shake(ctx context.Context, r api.ShakeRequest, addr string) (api.ShakeAnswer, error) {
	key, ok := t.keys.GetUnexpired(r.ID)
	if !ok {
		return api.ShakeAnswer{}, t.refuseShake(r.ID, addr, errHandKey)
	}
	made, mark, refusal := t.openSecret(key, r.Secret)
	if refusal != nil {
		return api.ShakeAnswer{}, t.refuseShake(r.ID, addr, refusal)
	}
	first, err := t.nonces.Use(ctx, mark, made.Add(SecretTTL+2*maxClockSkew))
	switch {
	case err != nil:
		return api.ShakeAnswer{}, err
	case !first:
		return api.ShakeAnswer{}, t.refuseShake(r.ID, addr, errShakeUsed)
	}
	return api.ShakeAnswer{ID: r.ID, Data: t.sessions.Issue(key)}, nil
}

// LogIn verifies a session with which a browser logs in, once: a session that another program has read must not become
// a login that lives longer. Its other uses are not limited.
func (t *TAP) LogIn(ctx context.Context, bearer string) (Identity, error) {
	who, err := t.sessions.Verify(bearer)
	if err != nil {
		return Identity{}, err
	}
	session, err := parseBearer(bearer)
	if err != nil {
		return Identity{}, err
	}
	var mark Nonce
	sum := sha256.Sum256([]byte("login " + session.UserName + " " + session.SessionID))
	copy(mark[:], sum[:])
	first, err := t.nonces.Use(ctx, mark, signedAt(session.Token).Add(t.sessions.ttl+2*maxClockSkew))
	switch {
	case err != nil:
		return Identity{}, err
	case !first:
		return Identity{}, errLoginUsed
	}
	return who, nil
}

// TooManyFailures is the refusal of a failed attempt of a caller who fails too often.
func TooManyFailures() error { return tooManyFailures(failureInterval) }

func tooManyFailures(wait time.Duration) error {
	return &farm.Error{Code: farm.CodeTooMany, Message: "Too many failed attempts; try again later", RetryAfter: wait}
}

// refuseShake counts a failed attempt.
func (t *TAP) refuseShake(id, addr string, refusal *farm.Error) error {
	if t.failures.Count(id, addr) {
		return TooManyFailures()
	}
	return refusal
}

// newSecret makes a secret for a key.
func (t *TAP) newSecret(key farm.APIKey, now time.Time) string {
	raw := make([]byte, secretHeadBytes, secretBytes)
	binary.BigEndian.PutUint32(raw, uint32(now.Unix()))
	_, _ = rand.Read(raw[secretTimeBytes:])
	mac := t.sessions.signer.ring.Load().signingKey(now).sign(handPurpose, raw, key.ID, key.Generation)
	return handText.EncodeToString(append(raw, mac[:secretBytes-secretHeadBytes]...))
}

// openSecret verifies a secret, and returns when it was made and the nonce that marks it as used.
func (t *TAP) openSecret(key farm.APIKey, text string) (made time.Time, mark Nonce, refusal *farm.Error) {
	text = strings.TrimSpace(text)
	if len(text) != secretTextLength {
		return made, mark, errShakeSecret
	}
	raw, err := handText.DecodeString(text)
	if err != nil || len(raw) != secretBytes {
		return made, mark, errShakeSecret
	}
	good := 0
	for _, k := range t.sessions.signer.ring.Load().keys { // a secret does not contain the key version
		mac := k.sign(handPurpose, raw[:secretHeadBytes], key.ID, key.Generation)
		good |= subtle.ConstantTimeCompare(mac[:secretBytes-secretHeadBytes], raw[secretHeadBytes:])
	}
	if good == 0 {
		return made, mark, errShakeSecret
	}
	made = time.Unix(int64(binary.BigEndian.Uint32(raw)), 0)
	if age := time.Since(made); age >= SecretTTL+time.Second || age < -maxClockSkew {
		return made, mark, errShakeLate
	}
	sum := sha256.Sum256(raw)
	return made, Nonce(sum[:len(mark)]), nil
}

// maxTapBody bounds the body of a hand or shake, in bytes.
const maxTapBody = 16 << 10

// ParseHand parses the body of a hand, whatever its content type.
func ParseHand(body []byte) (api.HandRequest, error) {
	var r api.HandRequest
	if err := parseBody(body, &r); err != nil {
		return api.HandRequest{}, err
	}
	if r.ID == "" {
		return r, farm.Invalid("id", "is required")
	}
	return r, nil
}

// ParseShake parses the body of a shake, whatever its content type.
func ParseShake(body []byte) (api.ShakeRequest, error) {
	var r api.ShakeRequest
	if err := parseBody(body, &r); err != nil {
		return api.ShakeRequest{}, err
	}
	switch {
	case r.ID == "":
		return r, farm.Invalid("id", "is required")
	case r.Secret == "":
		return r, farm.Invalid("secret", "is required")
	}
	return r, nil
}

// parseBody parses JSON. Its errors contain nothing of the body, which may contain a secret.
func parseBody(body []byte, into any) error {
	if len(body) > maxTapBody {
		return farm.Errorf(farm.CodeTooLarge, "The request body is larger than %d bytes", maxTapBody)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return farm.Invalid("body", "must be a JSON object whose values are strings")
	}
	return nil
}
