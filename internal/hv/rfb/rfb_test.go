package rfb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
)

// script is a peer whose messages are fixed. It records what is written to it.
type script struct {
	io.Reader
	written bytes.Buffer
}

func (s *script) Write(b []byte) (int, error) { return s.written.Write(b) }

func scriptOf(messages ...string) *script {
	return &script{Reader: strings.NewReader(strings.Join(messages, ""))}
}

const (
	challenge = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
	accepted  = "\x00\x00\x00\x00"
	rejected  = "\x00\x00\x00\x01"
	busy      = "\x00\x00\x00\x04busy"
)

// response is that of the password "secret" to challenge. Source: openssl enc -des-ecb -nopad -provider
// legacy -K cea6c64ea62e0000, which is the password with the bits of each byte reversed.
var response = string(fromHex("ee22539f33a5983ec12f9c2edbc995dd"))

func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestChallengeResponse(t *testing.T) {
	for _, password := range []string{"secret", "secret\x00\x00", "secret\x00\x00 and more"} {
		if got := challengeResponse(password, []byte(challenge)); string(got) != response {
			t.Errorf("%q: %x, want %x", password, got, response)
		}
	}
	if got := challengeResponse("secret!", []byte(challenge)); string(got) == response {
		t.Error("another password has the same response")
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]version{
		"RFB 003.003\n": 3, "RFB 003.005\n": 3, "RFB 003.007\n": 7, "RFB 003.008\n": 8, "RFB 003.889\n": 8,
		"RFB 004.001\n": 8, "RFB 003.000\n": 3,
		"RFB 002.008\n": 0, "RFB 003.008": 0, "RFB +03.008\n": 0, "RFB 003.008\n\n": 0, "SSH-2.0-x.y\n": 0, "": 0,
	} {
		if got, err := parseVersion([]byte(text)); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

// What a viewer writes to a server in each version and kind of login, and what it makes of the answers.
func TestLogIn(t *testing.T) {
	const v3, v7, v8 = "RFB 003.003\n", "RFB 003.007\n", "RFB 003.008\n"
	for name, c := range map[string]struct {
		password, heard, wrote, failure string
	}{
		"3.8 password":         {"secret", v8 + "\x02\x01\x02" + challenge + accepted, v8 + "\x02" + response, ""},
		"3.7 password":         {"secret", v7 + "\x01\x02" + challenge + accepted, v7 + "\x02" + response, ""},
		"3.3 password":         {"secret", v3 + "\x00\x00\x00\x02" + challenge + accepted, v3 + response, ""},
		"3.8 none":             {"", v8 + "\x02\x02\x01" + accepted, v8 + "\x01", ""},
		"3.8 none, a password": {"secret", v8 + "\x02\x10\x01" + accepted, v8 + "\x01", ""},
		"3.7 none":             {"", v7 + "\x01\x01", v7 + "\x01", ""},
		"3.3 none":             {"", v3 + "\x00\x00\x00\x01", v3, ""},
		"Apple's version":      {"", "RFB 003.889\n\x01\x01" + accepted, v8 + "\x01", ""},

		"3.8 wrong password": {
			"secret", v8 + "\x01\x02" + challenge + rejected + busy, v8 + "\x02" + response,
			`the VNC server refused the login: "busy"`,
		},
		"3.7 wrong password": {
			"secret", v7 + "\x01\x02" + challenge + rejected, v7 + "\x02" + response,
			"the VNC server refused the login",
		},
		"3.8 refused":          {"", v8 + "\x00" + busy, v8, `the VNC server refused the connection: "busy"`},
		"3.3 refused":          {"", v3 + "\x00\x00\x00\x00" + busy, v3, `refused the connection: "busy"`},
		"no password is known": {"", v8 + "\x01\x02", v8, "asks for a password and none is known"},
		"unknown types":        {"", v8 + "\x02\x05\x06", v8, "offers the security types [5 6]: want 1 (none) or 2"},
		"unknown 3.3 type":     {"", v3 + "\x00\x00\x01\x01", v3, "chose the security type 257"},
		"no VNC server":        {"", "SSH-2.0-host", "", "VNC server: unsupported protocol version"},
		"no version":           {"", "RFB", "", "read the version of the VNC server: unexpected EOF"},
		"cut types":            {"", v8 + "\x05\x01", v8, "read the security types of the VNC server: unexpected EOF"},
		"cut challenge":        {"secret", v8 + "\x01\x02" + "half", v8 + "\x02", "read the challenge"},
		"no result":            {"", v8 + "\x01\x01", v8 + "\x01", "read the login result of the VNC server: EOF"},
		"no reason":            {"", v8 + "\x00\x00", v8, `refused the connection: "no reason"`},
		"long reason": {
			"", v8 + "\x00\xff\xff\xff\xff" + strings.Repeat("a", 2*maxReasonBytes), v8,
			`refused the connection: "` + strings.Repeat("a", maxReasonBytes) + `"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptOf(c.heard)
			err := LogIn(s, c.password)
			if (err == nil) != (c.failure == "") || err != nil && !strings.Contains(err.Error(), c.failure) {
				t.Errorf("error %v, want %q", err, c.failure)
			}
			if got := s.written.String(); got != c.wrote {
				t.Errorf("wrote %q, want %q", got, c.wrote)
			}
		})
	}
}

// What a server writes to a viewer in each version: without a password, with a wrong one, refused.
func TestAcceptViewer(t *testing.T) {
	const wrong = "0123456789abcdef"
	noPassword := func(c io.ReadWriter) error { return AcceptViewer(c, "") }
	withPassword := func(c io.ReadWriter) error { return AcceptViewer(c, "secret") }
	refused := func(c io.ReadWriter) error { return RefuseViewer(c, "busy") }
	for name, c := range map[string]struct {
		serve   func(io.ReadWriter) error
		heard   string
		wrote   string // behind the version; 16 bytes of the challenge are shown as ?
		failure string
	}{
		"3.8 none": {noPassword, "RFB 003.008\n\x01", "\x01\x01" + accepted, ""},
		"3.7 none": {noPassword, "RFB 003.007\n\x01", "\x01\x01", ""},
		"3.3 none": {noPassword, "RFB 003.003\n", "\x00\x00\x00\x01", ""},
		"3.8 wrong": {
			withPassword, "RFB 003.008\n\x02" + wrong,
			"\x01\x02?" + rejected + "\x00\x00\x00\x16The password is wrong.",
			ErrWrongPassword.Error(),
		},
		"3.7 wrong": {withPassword, "RFB 003.007\n\x02" + wrong, "\x01\x02?" + rejected, ErrWrongPassword.Error()},
		"3.3 wrong": {withPassword, "RFB 003.003\n" + wrong, "\x00\x00\x00\x02?" + rejected, ErrWrongPassword.Error()},
		"password skipped": {
			withPassword, "RFB 003.007\n\x01", "\x01\x02" + rejected,
			"the viewer chose 1, which was not offered: want 2",
		},
		"3.8 refused":  {refused, "RFB 003.008\n", "\x00" + busy, ""},
		"3.3 refused":  {refused, "RFB 003.003\n", "\x00\x00\x00\x00" + busy, ""},
		"no viewer":    {withPassword, "GET / HTTP/1.1\r\n", "", "VNC viewer: unsupported protocol version"},
		"cut version":  {refused, "RFB ", "", "read the version of the VNC viewer: unexpected EOF"},
		"cut choice":   {noPassword, "RFB 003.008\n", "\x01\x01", "security type: EOF"},
		"cut response": {withPassword, "RFB 003.003\n123", "\x00\x00\x00\x02?", "read the password response"},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptOf(c.heard)
			err := c.serve(s)
			if (err == nil) != (c.failure == "") || err != nil && !strings.Contains(err.Error(), c.failure) {
				t.Errorf("error %v, want %q", err, c.failure)
			}
			got, greeted := strings.CutPrefix(s.written.String(), newestVersion)
			before, after, hasChallenge := strings.Cut(c.wrote, "?")
			if hasChallenge && len(got) >= len(before)+challengeBytes {
				got = got[:len(before)] + "?" + got[len(before)+challengeBytes:]
			}
			if want := before + map[bool]string{true: "?"}[hasChallenge] + after; !greeted || got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
		})
	}
}

// limited counts what a handshake reads and writes.
type limited struct {
	script
	read int
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.script.Read(b)
	l.read += n
	return n, err
}

func (l *limited) check(t *testing.T) {
	t.Helper()
	if limit := 12 + 1 + 255 + 16 + 4 + 4 + maxReasonBytes; l.read > limit || l.written.Len() > limit {
		t.Errorf("read %d and wrote %d bytes, want at most %d", l.read, l.written.Len(), limit)
	}
}

func FuzzLogIn(f *testing.F) {
	f.Add([]byte("RFB 003.008\n\x02\x01\x02"+challenge+accepted), "secret")
	f.Add([]byte("RFB 003.007\n\x01\x01"), "")
	f.Add([]byte("RFB 003.003\n\x00\x00\x00\x02"+challenge+rejected), "secret")
	f.Add([]byte("RFB 003.889\n\x00\xff\xff\xff\xffno"), "secret")
	f.Fuzz(func(t *testing.T, heard []byte, password string) {
		l := &limited{script: script{Reader: bytes.NewReader(heard)}}
		err := LogIn(l, password)
		l.check(t)
		if err == nil && (!bytes.HasPrefix(heard, []byte("RFB ")) || string(heard[4:7]) < "003") {
			t.Error("logged in at something else than a VNC server")
		}
	})
}

func FuzzAcceptViewer(f *testing.F) {
	f.Add([]byte("RFB 003.008\n\x02" + challenge))
	f.Add([]byte("RFB 003.007\n\x01"))
	f.Add([]byte("RFB 003.003\n" + challenge))
	f.Fuzz(func(t *testing.T, heard []byte) {
		for _, password := range []string{"secret", ""} {
			l := &limited{script: script{Reader: bytes.NewReader(heard)}}
			err := AcceptViewer(l, password)
			l.check(t)
			if err == nil && password != "" {
				t.Error("a viewer without the password was admitted")
			}
		}
	})
}

func TestErrWrongPassword(t *testing.T) {
	if err := AcceptViewer(scriptOf("RFB 003.003\n"+challenge), "secret"); !errors.Is(err, ErrWrongPassword) {
		t.Errorf("got %v", err)
	}
}
