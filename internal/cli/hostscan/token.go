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
	"runtime"
	"strings"

	"github.com/buildyard/buildyard/internal/rest/hostrest"
)

// maxTokenBytes bounds a file with a token in bytes.
const maxTokenBytes = 4 << 10

// requireForChanges is the value of require-token with which reading is free on loopback, while
// starting, stopping and resetting scans requires the token.
const requireForChanges = "changes"

// tokenFileName is the token's file in the state directory.
const tokenFileName = "token"

// accessRules returns which callers are allowed. Where other machines can reach the service, a token is
// required: a missing one is created.
func (s settings) accessRules(p defaultPaths) (hostrest.Access, error) {
	changes := s.RequireToken == requireForChanges
	a := hostrest.Access{Listen: s.ListenAddr, AllowedHosts: s.AllowedHosts, Token: s.Token, ReadWithoutToken: changes}
	path := s.TokenFile
	if path == "" && s.Token == "" && (changes || !hostrest.IsLoopbackAddress(s.ListenAddr)) {
		if p.State == "" {
			return a, errors.New("home directory not found for the token; set token-file")
		}
		path = filepath.Join(p.State, tokenFileName)
	}
	if path == "" {
		return a, nil
	}
	var err error
	a.Token, err = readToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.Token, err = createToken(path, changes)
	}
	if err != nil {
		err = fmt.Errorf("token-file: %w", err)
	}
	return a, err
}

// checkToken refuses a file with a token whose permissions are too wide. Only its owner and group
// may read it, and only its owner may change it.
func checkToken(f *os.File) error {
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o037 != 0 {
		err = fmt.Errorf("file is accessible by other users (mode %#o): run chmod 640", info.Mode().Perm())
	}
	return err
}

// readSecret reads a file that check accepts, up to most bytes.
func readSecret(path string, most int64, check func(*os.File) error) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := check(f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, most))
	return strings.TrimSpace(string(raw)), err
}

// readToken reads a token from a file that only its owner, and maybe its group, may read.
func readToken(path string) (string, error) {
	token, err := readSecret(path, maxTokenBytes, checkToken)
	switch {
	case err != nil:
		return "", err
	case token == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s must contain a single token", path)
	}
	return token, nil
}

// createToken creates a token and its file, which with shared its group may read too.
func createToken(path string, shared bool) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	token := base64.RawURLEncoding.EncodeToString(raw)
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // only its owner may read it
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(token + "\n")
	if err == nil && shared {
		err = errors.Join(f.Chmod(0o640), allowGroup(filepath.Dir(path)))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return token, err
}

// allowGroup permits the group of a directory to open those files in it that it may read.
func allowGroup(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o010 != 0 {
		return err
	}
	return os.Chmod(dir, info.Mode().Perm()|0o010)
}

// localToken returns the token created by the service of this machine, if this user may read it: of
// this user's service, or of the system's.
func localToken() string {
	home, _ := os.UserHomeDir()
	for _, root := range []bool{os.Geteuid() == 0, true} {
		if state := pathsFor(runtime.GOOS, root, home, os.Getenv).State; state != "" {
			if token, err := readToken(filepath.Join(state, tokenFileName)); err == nil {
				return token
			}
		}
	}
	return ""
}
