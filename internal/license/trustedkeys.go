package license

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AuthorityFile is the name of a file with public keys, in each directory that is searched.
const AuthorityFile = "authority.pub"

// SystemDir is where a machine keeps the authority of all its programs.
const SystemDir = "/etc/buildyard"

// Limits of an authority file.
const (
	maxFileBytes = 64 << 10 // bytes
	maxKeys      = 100
)

// The first lines of key files. The encoded keys have the same form, so these lines tell one kind from the other.
const (
	secretHeader = "# The secret of an authority of buildyard: its holder can sign as the authority."
	publicHeader = "# The public key of an authority of buildyard. It is not secret."
)

// TrustedKeys is the public keys of the authorities that a program trusts.
type TrustedKeys []ed25519.PublicKey

// UserDir is the user's own directory for settings of these programs; "" when there is none.
func UserDir() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "buildyard")
}

// LoadTrustedKeys reads the authority of a file, which must exist; with "" it reads those of
// the machine and of the user, as far as they exist.
func LoadTrustedKeys(path string) (TrustedKeys, error) {
	if path != "" {
		return readTrustedKeys(path)
	}
	var all TrustedKeys
	for _, dir := range []string{SystemDir, UserDir()} {
		if dir == "" {
			continue
		}
		t, err := readTrustedKeys(filepath.Join(dir, AuthorityFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, t...)
	}
	return all, nil
}

// LoadPublicKey reads a file that has one public key, for any purpose.
func LoadPublicKey(path string) (ed25519.PublicKey, error) {
	t, err := readTrustedKeys(path)
	if err != nil {
		return nil, err
	}
	if len(t) != 1 {
		return nil, fmt.Errorf("%s has %d public keys; want exactly one", path, len(t))
	}
	return t[0], nil
}

func readTrustedKeys(path string) (TrustedKeys, error) {
	raw, err := readBounded(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read public key file: %w", err)
	}
	if hasLine(raw, secretHeader) {
		return nil, fmt.Errorf("%s has a private key: want the public key, in the file that ends in .pub", path)
	}
	t, err := ParseTrustedKeys(raw)
	if err != nil {
		return nil, fmt.Errorf("parse public key file %s: %w", path, err)
	}
	return t, nil
}

// readBounded reads a whole file that must not be larger than limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, err
}

// ParseTrustedKeys reads an authority file: one public key a line, 32 bytes in base64. What
// follows a key on its line, and lines that begin with #, are for people.
func ParseTrustedKeys(raw []byte) (TrustedKeys, error) {
	var t TrustedKeys
	no, lines := 0, bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		no++
		word, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if word == "" || word[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.Strict().DecodeString(word)
		switch {
		case err != nil || len(key) != ed25519.PublicKeySize:
			return nil, fmt.Errorf("line %d is not a public key: want %d bytes in base64", no, ed25519.PublicKeySize)
		case len(t) == maxKeys:
			return nil, fmt.Errorf("the file has more than %d public keys", maxKeys)
		}
		t = append(t, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d is too long", no+1)
	}
	if len(t) == 0 {
		return nil, errors.New("the file has no public key")
	}
	return t, nil
}

// GenerateKeys makes an authority: its secret in a new file that its owner alone may read, its
// public key in another new file. It replaces nothing.
func GenerateKeys(secretPath, publicPath string) error {
	public, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	for _, path := range []string{secretPath, publicPath} { // before either is made
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s already exists; keys are never replaced", path)
		}
	}
	text := base64.StdEncoding.EncodeToString(secret.Seed())
	err = createFile(secretPath, 0o600, secretHeader+"\n"+text+"\n")
	if err != nil {
		return err
	}
	text = base64.StdEncoding.EncodeToString(public)
	return createFile(publicPath, 0o644, publicHeader+"\n"+text+"\n")
}

// createFile writes a file that must not exist.
func createFile(path string, mode fs.FileMode, text string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists; keys are never replaced", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadSecret reads the secret that GenerateKeys wrote.
func ReadSecret(path string) (ed25519.PrivateKey, error) {
	raw, err := readBounded(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read private key file: %w", err)
	}
	if hasLine(raw, publicHeader) {
		return nil, fmt.Errorf("%s has a public key: want the private key, which \"buildyard license keygen\" "+
			"writes next to it", path)
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		seed, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(seed) != ed25519.SeedSize {
			break
		}
		return ed25519.NewKeyFromSeed(seed), nil
	}
	return nil, fmt.Errorf("%s has no private key: want the file of \"buildyard license keygen --out\"", path)
}

// hasLine reports whether a file has a line.
func hasLine(raw []byte, want string) bool {
	for line := range bytes.Lines(raw) {
		if string(bytes.TrimSpace(line)) == want {
			return true
		}
	}
	return false
}
