package rfb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// LogIn performs a viewer's handshake with a VNC server. The next message is the ClientInit to the
// server. With a password it prefers the security type that asks for one. The caller sets deadlines
// and closes the connection.
func LogIn(c io.ReadWriter, password string) error {
	hello, err := readBytes(c, versionBytes)
	if err != nil {
		return fmt.Errorf("read the version of the VNC server: %w", err)
	}
	v, err := parseVersion(hello)
	if err != nil {
		return fmt.Errorf("VNC server: %w", err)
	}
	if _, err := io.WriteString(c, v.String()); err != nil {
		return err
	}

	kind, err := v.chooseSecurity(c, password)
	if err != nil {
		return err
	}
	if kind == securityVNCAuth {
		challenge, err := readBytes(c, challengeBytes)
		if err != nil {
			return fmt.Errorf("read the challenge of the VNC server: %w", err)
		}
		if _, err := c.Write(challengeResponse(password, challenge)); err != nil {
			return err
		}
	}
	if kind == securityNone && v < 8 { // which send no result for this type
		return nil
	}
	return v.readResult(c)
}

// chooseSecurity reads the server's security types and answers with one of them.
func (v version) chooseSecurity(c io.ReadWriter, password string) (byte, error) {
	types, err := v.readSecurityTypes(c)
	if err != nil {
		return 0, err
	}
	var kind byte
	switch {
	case password != "" && bytes.IndexByte(types, securityVNCAuth) >= 0:
		kind = securityVNCAuth
	case bytes.IndexByte(types, securityNone) >= 0:
		kind = securityNone
	case bytes.IndexByte(types, securityVNCAuth) >= 0:
		return 0, errors.New("the VNC server asks for a password and none is known")
	default:
		return 0, fmt.Errorf("the VNC server offers the security types %v: want %d (none) or %d (password)", types,
			securityNone, securityVNCAuth)
	}
	if v == 3 {
		return kind, nil
	}
	_, err = c.Write([]byte{kind})
	return kind, err
}

// readSecurityTypes reads the types that the server offers. In version 3.3 the server chooses.
func (v version) readSecurityTypes(r io.Reader) ([]byte, error) {
	var types []byte
	if v == 3 {
		kind, err := readUint32(r)
		if err != nil {
			return nil, fmt.Errorf("read the security type of the VNC server: %w", err)
		}
		if kind > 255 {
			return nil, fmt.Errorf("the VNC server chose the security type %d: want %d (none) or %d (password)", kind,
				securityNone, securityVNCAuth)
		}
		types = []byte{byte(kind)}
	} else {
		count, err := readBytes(r, 1)
		if err == nil {
			types, err = readBytes(r, int(count[0]))
		}
		if err != nil {
			return nil, fmt.Errorf("read the security types of the VNC server: %w", err)
		}
	}
	if len(types) == 0 || v == 3 && types[0] == securityInvalid {
		return nil, fmt.Errorf("the VNC server refused the connection: %q", readReason(r))
	}
	return types, nil
}

func (v version) readResult(r io.Reader) error {
	result, err := readUint32(r)
	switch {
	case err != nil:
		return fmt.Errorf("read the login result of the VNC server: %w", err)
	case result == resultOK:
		return nil
	case v < 8:
		return errors.New("the VNC server refused the login")
	}
	return fmt.Errorf("the VNC server refused the login: %q", readReason(r))
}
