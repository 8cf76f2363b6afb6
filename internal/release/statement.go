// Package release is about agent packages: the archives from which nodes update their agent. It
// signs and verifies statements about them, and manages the directory in which a controller stores
// them.
//
// It installs nothing, which is up to the node, and uses no network.
//
// Invariant: what Verify returns was signed, byte for byte, by a trusted key; and a Repository
// offers a package only while its file has the signed size and digest.
package release

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/license"
)

// Limits of a package.
const (
	MaxPackageBytes   = 512 << 20 // bytes of the archive
	MaxStatementBytes = 4096      // bytes of its signed statement
	maxVersionBytes   = 100       // bytes
)

// statementPrefix begins every statement; a signature under it is never one of another kind of document.
const statementPrefix = "BP1"

// payloadFormat is the newest supported form of a statement.
const payloadFormat = 1

// Platform is the target of a build.
type Platform struct{ OS, Arch string }

// Platforms lists the platforms that agents are built for.
var Platforms = []Platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// PackageFile returns the name of the package for a platform.
func (p Platform) PackageFile() string { return "buildnode-" + p.OS + "-" + p.Arch + ".tar.gz" }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// PlatformOf returns the platform of the package with a file name.
func PlatformOf(file string) (Platform, bool) {
	for _, p := range Platforms {
		if p.PackageFile() == file {
			return p, true
		}
	}
	return Platform{}, false
}

// The causes of an invalid statement. Each error of Verify is one of them.
var (
	// ErrNotAStatement reports a text that is not a statement.
	ErrNotAStatement = errors.New("not a signed description of an agent package")
	// ErrNewer reports a statement that an older program does not understand.
	ErrNewer = errors.New("the agent package requires a newer version of this program")
	// ErrSignature reports a statement without the signature of a trusted key.
	ErrSignature = errors.New("not signed with a trusted key")
)

// statementPayload is the payload of a statement.
type statementPayload struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
}

func (s statementPayload) validate() error {
	sum, err := hex.DecodeString(s.SHA256)
	switch {
	case s.Format > payloadFormat:
		return fmt.Errorf("%w: its format is %d, this program supports up to %d", ErrNewer, s.Format, payloadFormat)
	case s.Format < 1:
		return fmt.Errorf("%w: format %d is invalid", ErrNotAStatement, s.Format)
	case !slices.Contains(Platforms, Platform{s.OS, s.Arch}):
		return fmt.Errorf("%w: the platform must be one of %v", ErrNotAStatement, Platforms)
	case !ValidVersion(s.Version):
		return fmt.Errorf(
			"%w: the version must have 1 to %d letters, digits, dots, dashes, pluses or underscores, and begin with "+
				"a letter or a digit", ErrNotAStatement, maxVersionBytes)
	case s.Size < 1 || s.Size > MaxPackageBytes:
		return fmt.Errorf("%w: the size must be 1 to %d bytes", ErrNotAStatement, MaxPackageBytes)
	case err != nil || len(sum) != sha256.Size || s.SHA256 != strings.ToLower(s.SHA256):
		return fmt.Errorf("%w: the digest must be a SHA-256 in hex", ErrNotAStatement)
	}
	return nil
}

// ValidVersion reports whether a text may be a version. It is also the name of a directory.
func ValidVersion(v string) bool {
	if v == "" || len(v) > maxVersionBytes || strings.ContainsRune(".-+_", rune(v[0])) {
		return false
	}
	return !strings.ContainsFunc(v, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune(".-+_", r))
	})
}

// statementEncoding is the base64 of statements: URL-safe, without padding, with one encoding for each content.
var statementEncoding = base64.RawURLEncoding.Strict()

// Sign returns the statement about a package. The package's name and earlier signature are ignored.
func Sign(key ed25519.PrivateKey, p api.AgentPackage) (string, error) {
	s := statementPayload{
		Format: payloadFormat, Version: p.Version, OS: p.OS, Arch: p.Arch, Size: p.Size,
		SHA256: p.SHA256,
	}
	if err := s.validate(); err != nil {
		return "", err
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("statement: %w", err)
	}
	signed := statementPrefix + "." + statementEncoding.EncodeToString(payload)
	return signed + "." + statementEncoding.EncodeToString(ed25519.Sign(key, []byte(signed))), nil
}

// Parse reads a statement without verifying it.
func Parse(text string) (api.AgentPackage, error) {
	p, _, _, err := parseStatement(text)
	return p, err
}

func parseStatement(text string) (p api.AgentPackage, signed, signature []byte, err error) {
	text = strings.TrimSpace(text)
	parts := strings.Split(text, ".")
	if len(text) > MaxStatementBytes || len(parts) != 3 || parts[0] != statementPrefix ||
		strings.ContainsAny(text, "\r\n") {
		return p, nil, nil, fmt.Errorf("%w: want the form %s.PAYLOAD.SIGNATURE", ErrNotAStatement, statementPrefix)
	}
	payload, err := statementEncoding.DecodeString(parts[1])
	if err != nil {
		return p, nil, nil, fmt.Errorf("%w: the payload is not base64url", ErrNotAStatement)
	}
	if signature, err = statementEncoding.DecodeString(parts[2]); err != nil ||
		len(signature) != ed25519.SignatureSize {
		return p, nil, nil, fmt.Errorf("%w: the signature is not base64url of %d bytes", ErrNotAStatement,
			ed25519.SignatureSize)
	}
	var s statementPayload
	if err := json.Unmarshal(payload, &s); err != nil || !bytes.HasPrefix(payload, []byte("{")) {
		return p, nil, nil, fmt.Errorf("%w: the payload cannot be parsed", ErrNotAStatement)
	}
	if err := s.validate(); err != nil {
		return p, nil, nil, err
	}
	p = api.AgentPackage{
		Name: Platform{s.OS, s.Arch}.PackageFile(), Version: s.Version, OS: s.OS, Arch: s.Arch, Size: s.Size,
		SHA256: s.SHA256,
		Signed: text,
	}
	return p, []byte(parts[0] + "." + parts[1]), signature, nil
}

// Verify returns the statement that a trusted key signed about a package.
func Verify(trust license.TrustedKeys, text string) (api.AgentPackage, error) {
	p, signed, signature, err := parseStatement(text)
	if err != nil {
		return api.AgentPackage{}, err
	}
	for _, key := range trust {
		if ed25519.Verify(key, signed, signature) {
			return p, nil
		}
	}
	if len(trust) == 0 {
		return api.AgentPackage{}, fmt.Errorf("%w: this program has no trusted key", ErrSignature)
	}
	return api.AgentPackage{}, ErrSignature
}

// Digest reads a package to its end and returns its size and SHA-256.
func Digest(r io.Reader) (size int64, sum string, err error) {
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(r, MaxPackageBytes+1))
	if err == nil && size > MaxPackageBytes {
		err = fmt.Errorf("the agent package has more than %d bytes", MaxPackageBytes)
	}
	return size, hex.EncodeToString(h.Sum(nil)), err
}
