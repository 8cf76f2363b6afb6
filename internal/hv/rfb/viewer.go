package rfb

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"io"
)

// AcceptViewer performs a server's handshake with a viewer: with a password it asks for it, without
// one it admits every viewer. The next message is the viewer's ClientInit. The caller sets deadlines
// and closes the connection.
func AcceptViewer(c io.ReadWriter, password string) error {
	v, err := readViewerVersion(c)
	if err != nil {
		return err
	}

	kind := byte(securityNone)
	if password != "" {
		kind = securityVNCAuth
	}
	if err := v.agreeOnSecurity(c, kind); err != nil {
		return fmt.Errorf("agree with the VNC viewer on a security type: %w", err)
	}

	if kind == securityVNCAuth {
		return v.checkPassword(c, password)
	}
	if v < 8 { // which send no result for this type
		return nil
	}
	return writeResult(c)
}

// RefuseViewer performs the handshake with a viewer up to the point at which a server refuses it
// with a reason. The reason is for the viewer's user, who is not authenticated.
func RefuseViewer(c io.ReadWriter, reason string) error {
	v, err := readViewerVersion(c)
	if err != nil {
		return err
	}
	refusal := []byte{securityInvalid}
	if v == 3 {
		refusal = binary.BigEndian.AppendUint32(nil, securityInvalid)
	}
	_, err = c.Write(appendReason(refusal, reason))
	return err
}

func readViewerVersion(c io.ReadWriter) (version, error) {
	hello, err := exchange(c, []byte(newestVersion), versionBytes)
	if err != nil {
		return 0, fmt.Errorf("read the version of the VNC viewer: %w", err)
	}
	v, err := parseVersion(hello)
	if err != nil {
		return 0, fmt.Errorf("VNC viewer: %w", err)
	}
	return v, nil
}

// agreeOnSecurity offers one security type. A viewer of version 3.3 has no choice.
func (v version) agreeOnSecurity(c io.ReadWriter, kind byte) error {
	if v == 3 {
		_, err := c.Write(binary.BigEndian.AppendUint32(nil, uint32(kind)))
		return err
	}
	chosen, err := exchange(c, []byte{1, kind}, 1)
	if err != nil {
		return err
	}
	if chosen[0] != kind {
		v.writeFailure(c, "This security type was not offered.")
		return fmt.Errorf("the viewer chose %d, which was not offered: want %d", chosen[0], kind)
	}
	return nil
}

func (v version) checkPassword(c io.ReadWriter, password string) error {
	challenge := make([]byte, challengeBytes)
	_, _ = rand.Read(challenge) // never fails
	response, err := exchange(c, challenge, challengeBytes)
	if err != nil {
		return fmt.Errorf("read the password response of the VNC viewer: %w", err)
	}
	if subtle.ConstantTimeCompare(response, challengeResponse(password, challenge)) != 1 {
		v.writeFailure(c, "The password is wrong.")
		return ErrWrongPassword
	}
	return writeResult(c)
}

func writeResult(w io.Writer) error {
	_, err := w.Write(binary.BigEndian.AppendUint32(nil, resultOK))
	return err
}

// writeFailure ends a handshake. Only version 3.8 has a reason in this place. The viewer may have
// left, which is of no interest.
func (v version) writeFailure(w io.Writer, reason string) {
	b := binary.BigEndian.AppendUint32(nil, resultFailed)
	if v == 8 {
		b = appendReason(b, reason)
	}
	_, _ = w.Write(b)
}
