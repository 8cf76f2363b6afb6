package hostscan

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/rest/hostrest"
)

// maxToken bounds a file with a token in bytes.
const maxToken = 4 << 10

// tokenName is the token's file in the folder of the state.
const tokenName = "token"

// access gives who may ask. Where others than this machine can reach the service, there is a
// token: one that is not there yet is made.
func (s settings) access(p places) (hostrest.Access, error) {
	a := hostrest.Access{Listen: s.ListenAddr, Names: s.AllowedHosts, Token: s.Token}
	path := s.TokenFile
	if path == "" && s.Token == "" && !hostrest.Loopback(s.ListenAddr) {
		if p.State == "" {
			return a, errors.New("there is no home folder for the token: set token-file")
		}
		path = filepath.Join(p.State, tokenName)
	}
	if path == "" {
		return a, nil
	}
	var err error
	a.Token, err = readToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.Token, err = makeToken(path)
	}
	if err != nil {
		err = fmt.Errorf("token-file: %w", err)
	}
	return a, err
}

// readSecret reads a file that only its owner may read, up to so many bytes.
func readSecret(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := config.CheckPrivate(f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, most))
	return strings.TrimSpace(string(raw)), err
}

// readToken reads a token of a file that only its owner may read.
func readToken(path string) (string, error) {
	token, err := readSecret(path, maxToken)
	switch {
	case err != nil:
		return "", err
	case token == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s has more than a token: it must be one word", path)
	}
	return token, nil
}

// makeToken makes a token and its file.
func makeToken(path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	token := base64.RawURLEncoding.EncodeToString(raw)
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // which its owner alone may read
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return token, err
}
