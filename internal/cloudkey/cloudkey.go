// Package cloudkey has the key of a cloud, by which nodes recognize it at any address. A controller signs with it that
// an address is its own, the addresses that it announces, and tokens with which nodes read from each other.
//
// It stores no key, opens no connection and knows no node: whether an address is one of the controller is up to the
// controller.
//
// Invariant: a signature is valid for one kind of statement, and a proof for one nonce and one URL only, so that an
// untrusted controller cannot pass on what another one has signed.
package cloudkey

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The first lines of everything that is signed.
const (
	proofKind        = "buildyard cloud proof 1"
	announcementKind = "buildyard cloud announcement 1"
	requestKind      = "buildyard node request 1"
	peerKind         = "buildyard peer token 1"
)

// encoding is the form of keys and signatures.
var encoding = base64.RawURLEncoding.Strict()

// ErrSignature reports that a statement is not signed with the key of the cloud.
var ErrSignature = errors.New("not signed with the key of this node's cloud")

// Key is the private key of a cloud. Printing it shows no secret.
type Key struct{ private *ed25519.PrivateKey }

// New creates a key.
func New() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("create the key of the cloud: %w", err)
	}
	return Key{&private}, nil
}

// Parse reads what Encode returned. Its errors contain nothing of the text.
func Parse(text string) (Key, error) {
	seed, err := encoding.DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return Key{}, errors.New("the key of the cloud is damaged")
	}
	private := ed25519.NewKeyFromSeed(seed)
	return Key{&private}, nil
}

// Encode returns the key as a text, a secret.
func (k Key) Encode() string { return encoding.EncodeToString(k.private.Seed()) }

// Format implements fmt.Formatter: every verb prints the mask.
func (Key) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, "***") }

// MarshalText returns the mask, in JSON too: storing a key takes Encode.
func (Key) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Public returns the public key, by which nodes recognize the cloud.
func (k Key) Public() string {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return encoding.EncodeToString(public)
}

// CloudID returns a short name of the cloud with a public key.
func CloudID(public string) string {
	sum := sha256.Sum256([]byte(public))
	return hex.EncodeToString(sum[:8])
}

// ValidPublic reports whether a text is a public key.
func ValidPublic(public string) bool {
	raw, err := encoding.DecodeString(public)
	return err == nil && len(raw) == ed25519.PublicKeySize
}

// Prove signs that the controller at a URL belongs to the cloud. The nonce is from the node that asks.
func (k Key) Prove(nonce, url string) string { return k.sign(proofKind, nonce, url) }

// VerifyProof checks what Prove returned for the same nonce and URL.
func VerifyProof(public, nonce, url, signature string) error {
	return verify(public, signature, proofKind, nonce, url)
}

// Announcement is what a cloud announces to its nodes.
type Announcement struct {
	URLs []string `json:"urls"`         // of its controllers
	CA   string   `json:"ca,omitempty"` // PEM of the authorities of their certificates; "": those that nodes know
}

// Announce signs an announcement.
func (k Key) Announce(a Announcement) string { return k.sign(announcementKind, a.text()) }

// VerifyAnnouncement checks what Announce returned for the same announcement.
func VerifyAnnouncement(public string, a Announcement, signature string) error {
	return verify(public, signature, announcementKind, a.text())
}

// text is the signed form of an announcement.
func (a Announcement) text() string {
	if len(a.URLs) == 0 {
		a.URLs = nil // an empty list reads back as none
	}
	raw, _ := json.Marshal(a) // texts can always be encoded
	return string(raw)
}

func (k Key) sign(lines ...string) string {
	return encoding.EncodeToString(ed25519.Sign(*k.private, []byte(strings.Join(lines, "\n"))))
}

func verify(public, signature string, lines ...string) error {
	key, err := encoding.DecodeString(public)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return errors.New("the public key of the cloud is damaged")
	}
	raw, err := encoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(key, []byte(strings.Join(lines, "\n")), raw) {
		return ErrSignature
	}
	return nil
}

// NewNonce returns the random part of a request for a proof.
func NewNonce() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// CredentialDigest is the form in which a controller stores the credential of a node.
func CredentialDigest(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:])
}

// RequestMAC authenticates a node's request for a proof without showing its credential, which an untrusted
// controller could use. digest is CredentialDigest of the credential.
func RequestMAC(digest, nodeID, nonce, url string) string {
	mac := hmac.New(sha256.New, []byte(digest))
	_, _ = io.WriteString(mac, strings.Join([]string{requestKind, nodeID, nonce, url}, "\n"))
	return hex.EncodeToString(mac.Sum(nil))
}

// VerifyRequestMAC compares in constant time.
func VerifyRequestMAC(digest, nodeID, nonce, url, mac string) bool {
	return hmac.Equal([]byte(RequestMAC(digest, nodeID, nonce, url)), []byte(mac))
}
