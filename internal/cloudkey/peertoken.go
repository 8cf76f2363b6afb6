package cloudkey

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// PeerTokenLife is how long a token for a peer is valid.
const PeerTokenLife = 5 * time.Minute

// maxClockSkew is by how much the clock of a node may be behind that of its controller.
const maxClockSkew = 5 * time.Minute

// maxPeerTokenBytes bounds the text of a token: a time and a signature.
const maxPeerTokenBytes = 128

// ErrPeerToken reports that a token does not permit a request. It does not say why.
var ErrPeerToken = errors.New("the token does not permit this request")

// PeerPermit is what a token permits: one node reads one version from another one. Reader and Server are digests of the
// certificates that the nodes show each other: a token is useless to other nodes.
type PeerPermit struct{ ContentID, Reader, Server string }

// SignPeerToken returns a token that is valid until a time, to the second.
func (k Key) SignPeerToken(p PeerPermit, until time.Time) string {
	expiry := strconv.FormatInt(until.Unix(), 10)
	return expiry + "." + k.sign(p.lines(expiry)...)
}

// VerifyPeerToken checks what SignPeerToken returned for the same permit, by the public key of the cloud.
func VerifyPeerToken(public, token string, p PeerPermit, now time.Time) error {
	expiry, signature, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxPeerTokenBytes {
		return ErrPeerToken
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || verify(public, signature, p.lines(expiry)...) != nil {
		return ErrPeerToken
	}
	until := time.Unix(seconds, 0)
	if !now.Before(until) || until.Sub(now) > PeerTokenLife+maxClockSkew {
		return ErrPeerToken
	}
	return nil
}

func (p PeerPermit) lines(expiry string) []string {
	return []string{peerKind, p.ContentID, p.Reader, p.Server, expiry}
}
