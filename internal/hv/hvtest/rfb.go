package hvtest

import (
	"bytes"
	"context"
	"crypto/des"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"strconv"
	"time"
)

// errPassword: the screen's server did not take the password.
var errPassword = errors.New("the password was refused")

// login connects to a screen as a VNC viewer does (RFC 6143), up to the size of
// the screen. The password is asked for by challenge.
func login(ctx context.Context, port int, password string) (width, height int, err error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(viewTime))
	return enter(c, password)
}

// NoPassword is what View takes for a screen that asks for none.
const NoPassword = "\x00"

// viewTime is how long looking at a screen may take.
const viewTime = time.Minute

// View connects to a screen as a VNC viewer does and returns the size of the first rectangle that
// arrives. The screen has to ask for a password, or with NoPassword for none.
func View(c net.Conn, password string) (width, height int, err error) {
	_ = c.SetDeadline(time.Now().Add(viewTime))
	if width, height, err = enter(c, password); err != nil {
		return 0, 0, err
	}
	ask := []byte{3, 0, 0, 0, 0, 0, byte(width >> 8), byte(width), byte(height >> 8), byte(height)}
	if _, err := c.Write(ask); err != nil {
		return 0, 0, err
	}
	head, err := take(c, 16)
	if err != nil {
		return 0, 0, err
	}
	if head[0] != 0 || head[2] == 0 && head[3] == 0 {
		return 0, 0, fmt.Errorf("no part of a picture: %v", head)
	}
	width, height = int(head[8])<<8|int(head[9]), int(head[10])<<8|int(head[11])
	_, err = take(c, 4*width*height)
	return width, height, err
}

// enter logs in and returns the size of the screen.
func enter(c net.Conn, password string) (width, height int, err error) {
	if err := authenticate(c, password); err != nil {
		return 0, 0, err
	}
	if _, err := c.Write([]byte{1}); err != nil { // share the screen
		return 0, 0, err
	}
	screen, err := take(c, 24)
	if err != nil {
		return 0, 0, err
	}
	_, err = take(c, int(screen[22])<<8|int(screen[23])) // its name
	return int(screen[0])<<8 | int(screen[1]), int(screen[2])<<8 | int(screen[3]), err
}

// The security types.
const (
	letIn      = 1
	challenged = 2
)

func authenticate(c net.Conn, password string) error {
	hello, err := take(c, 12)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(hello, []byte("RFB 003.00")) {
		return fmt.Errorf("no VNC server: %q", hello)
	}
	if _, err := c.Write([]byte("RFB 003.008\n")); err != nil {
		return err
	}
	n, err := take(c, 1)
	if err != nil {
		return err
	}
	types, err := take(c, int(n[0]))
	if err != nil {
		return err
	}
	if password == NoPassword {
		if !bytes.Equal(types, []byte{letIn}) {
			return fmt.Errorf("the server offers the security types %v, want none alone", types)
		}
		verdict, err := exchange(c, []byte{letIn}, 4)
		if err == nil && !bytes.Equal(verdict, make([]byte, 4)) {
			err = fmt.Errorf("nobody is let in: %v", verdict)
		}
		return err
	}
	if !bytes.Equal(types, []byte{challenged}) {
		return fmt.Errorf("the server offers the security types %v, want a password alone", types)
	}
	if _, err := c.Write([]byte{challenged}); err != nil {
		return err
	}
	challenge, err := take(c, 16)
	if err != nil {
		return err
	}
	if _, err := c.Write(response(password, challenge)); err != nil {
		return err
	}
	verdict, err := take(c, 4)
	if err == nil && !bytes.Equal(verdict, make([]byte, 4)) {
		err = errPassword
	}
	return err
}

// response is the challenge under DES, whose key is the password with the bits of
// each byte turned round.
func response(password string, challenge []byte) []byte {
	var key [8]byte
	for i := range min(len(password), len(key)) {
		key[i] = bits.Reverse8(password[i])
	}
	block, err := des.NewCipher(key[:])
	if err != nil { // every key of 8 bytes is one
		panic(err)
	}
	out := make([]byte, 16)
	block.Encrypt(out, challenge)
	block.Encrypt(out[8:], challenge[8:])
	return out
}

func exchange(c net.Conn, say []byte, n int) ([]byte, error) {
	if _, err := c.Write(say); err != nil {
		return nil, err
	}
	return take(c, n)
}

func take(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
