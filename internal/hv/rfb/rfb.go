// Package rfb authenticates viewers of a VM's screen and logs in at VNC servers, by the handshake of
// the RFB protocol (RFC 6143, versions 3.3, 3.7 and 3.8), and relays a viewer to a server whose
// password differs.
//
// It does not listen, it does not dial, and it knows nothing of pictures: bytes after the handshake
// are copied as they are.
//
// Invariant: no byte passes between a viewer and a server before the viewer has shown the password, unless the
// screen has none.
package rfb

import (
	"crypto/des" //nolint:gosec // the only cipher of RFB's password authentication
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"regexp"
)

// ErrWrongPassword reports that a viewer does not know the password of the screen.
var ErrWrongPassword = errors.New("the VNC viewer sent a wrong password")

// Security types of RFC 6143, section 7.1.2, and 0, with which a server refuses a viewer.
const (
	securityInvalid = 0
	securityNone    = 1
	securityVNCAuth = 2
)

const (
	versionBytes   = 12 // of "RFB 003.008\n"
	challengeBytes = 16
	keyBytes       = 8    // of a password count
	maxReasonBytes = 1024 // of a refusal's text are read; the rest of the connection is not
	newestVersion  = "RFB 003.008\n"
	resultOK       = 0
	resultFailed   = 1
)

var versionPattern = regexp.MustCompile(`^RFB ([0-9]{3})\.([0-9]{3})\n$`)

// version is the minor version of RFB 3 whose handshake is spoken: 3, 7 or 8.
type version int

// parseVersion reads a version message. Numbers between those of the RFC stand for the next lower
// one, and newer ones, as Apple's server has, for 3.8.
func parseVersion(b []byte) (version, error) {
	m := versionPattern.FindSubmatch(b)
	if m == nil || string(m[1]) < "003" {
		return 0, fmt.Errorf("unsupported protocol version %q: want RFB 3.3 or newer", b)
	}
	switch minor := string(m[2]); {
	case string(m[1]) > "003" || minor >= "008":
		return 8, nil
	case minor == "007":
		return 7, nil
	}
	return 3, nil
}

// String returns the version message.
func (v version) String() string { return fmt.Sprintf("RFB 003.%03d\n", int(v)) }

// challengeResponse encrypts a challenge by DES. The key is the password with the bits of each byte
// reversed, as RFC 6143, section 7.2.2, has it.
func challengeResponse(password string, challenge []byte) []byte {
	var key [keyBytes]byte
	for i := range min(len(password), len(key)) {
		key[i] = bits.Reverse8(password[i])
	}
	block, err := des.NewCipher(key[:]) //nolint:gosec // what the protocol asks for
	if err != nil {
		panic(err) // every key of 8 bytes is valid
	}

	out := make([]byte, challengeBytes)
	block.Encrypt(out, challenge)
	block.Encrypt(out[des.BlockSize:], challenge[des.BlockSize:])
	return out
}

// appendReason appends a text with its length, as a refusal ends.
func appendReason(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// readReason reads the text of a refusal, at most maxReasonBytes of it.
func readReason(r io.Reader) string {
	size, err := readUint32(r)
	if err != nil {
		return "no reason"
	}
	text := make([]byte, min(size, maxReasonBytes))
	n, _ := io.ReadFull(r, text)
	return string(text[:n])
}

func readUint32(r io.Reader) (uint32, error) {
	b, err := readBytes(r, 4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

func readBytes(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// exchange writes a message and reads n bytes.
func exchange(c io.ReadWriter, message []byte, n int) ([]byte, error) {
	if _, err := c.Write(message); err != nil {
		return nil, err
	}
	return readBytes(c, n)
}
