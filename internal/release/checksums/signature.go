package checksums

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/release"
)

// commentPrefix begins the trusted comment of a signature; the version of the release follows.
const commentPrefix = "buildyard release "

// ErrSignature is in the chain of the error about a list that no trusted key signed.
var ErrSignature = errors.New("not signed by this key")

// GenerateKey creates a key pair in two new files. Only the owner can read the secret one, which is not encrypted.
func GenerateKey(secretFile, publicFile string) error {
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	secretText, err := secret.MarshalText()
	publicText, publicErr := public.MarshalText()
	if err := errors.Join(err, publicErr); err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	if err := createFile(secretFile, secretText, 0o600); err != nil {
		return err
	}
	return createFile(publicFile, publicText, 0o644)
}

func createFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	_, err = f.Write(append(bytes.TrimRight(text, "\n"), '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// Sign writes the list of a directory's files and its signature as the release of a version.
func Sign(dir, secretFile, version string) ([]string, error) {
	if !release.ValidVersion(version) {
		return nil, farm.Invalid("version", "invalid version %q", version)
	}
	raw, err := os.ReadFile(secretFile)
	if err != nil {
		return nil, fmt.Errorf("read secret key: %w", err)
	}
	var secret minisign.PrivateKey
	if err := secret.UnmarshalText(bytes.TrimSpace(raw)); err != nil {
		return nil, fmt.Errorf("read secret key %s: %w", secretFile, err)
	}
	names, err := WriteList(dir)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(dir, ListFile))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}

	reader := minisign.NewReader(bytes.NewReader(list))
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	signature := reader.SignWithComments(secret, commentPrefix+version, "signature of "+ListFile)
	signature = append(bytes.TrimRight(signature, "\n"), '\n')
	if err := os.WriteFile(filepath.Join(dir, SignatureFile), signature, 0o644); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return names, nil
}

// Verified describes a release whose files are those that were signed.
type Verified struct {
	Version string   `json:"version"`
	Files   []string `json:"files"` // the verified ones
}

// Verify verifies a directory with all files of a release, or one file next to its list. A release older than
// oldest is refused: it may be an old list in the place of a new one. An empty oldest permits every version.
func Verify(path, publicFile, oldest string) (v Verified, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	dir, wanted := path, ""
	if !info.IsDir() {
		dir, wanted = filepath.Dir(path), filepath.Base(path)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	defer root.Close()

	list, version, err := readSigned(root, publicFile)
	if err != nil {
		return v, err
	}
	if oldest != "" && farm.IsOlderVersion(version, oldest) {
		return v, farm.Refused("The signed list is of version %s, which is older than %s; get the list of the release "+
			"that you install, or accept older ones with --at-least", version, oldest)
	}
	sums, err := parseList(list)
	if err != nil {
		return v, err
	}
	names := []string{wanted}
	if wanted == "" {
		if names, err = listedFiles(root, sums, version); err != nil {
			return v, err
		}
	}
	return Verified{Version: version, Files: names}, verifyFiles(root, names, sums, version)
}

// readSigned returns the list and the version in its signature, after it has verified that.
func readSigned(root *os.Root, publicFile string) (list []byte, version string, err error) {
	raw, err := os.ReadFile(publicFile)
	if err != nil {
		return nil, "", fmt.Errorf("read public key: %w", err)
	}
	var public minisign.PublicKey
	if err := public.UnmarshalText(bytes.TrimSpace(raw)); err != nil {
		return nil, "", fmt.Errorf("read public key %s: %w", publicFile, err)
	}
	if list, err = readLimited(root, ListFile, maxListBytes); err != nil {
		return nil, "", err
	}
	text, err := readLimited(root, SignatureFile, maxSignatureBytes)
	if err != nil {
		return nil, "", err
	}
	var signature minisign.Signature
	if err := signature.UnmarshalText(bytes.TrimSpace(text)); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", SignatureFile, err)
	}
	if !minisign.Verify(public, list, bytes.TrimSpace(text)) {
		return nil, "", fmt.Errorf("%s: %w", ListFile, ErrSignature)
	}
	version, found := strings.CutPrefix(signature.TrustedComment, commentPrefix)
	if !found || !release.ValidVersion(version) {
		return nil, "", fmt.Errorf("%s: the trusted comment %q does not name a release", SignatureFile,
			signature.TrustedComment)
	}
	return list, version, nil
}

// listedFiles returns the names of all files of a list, if the directory has no others.
func listedFiles(root *os.Root, sums map[string]string, version string) ([]string, error) {
	names, err := fileNames(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if sums[name] == "" {
			return nil, notListed(name, version)
		}
	}
	for name := range sums {
		if !slices.Contains(names, name) {
			return nil, farm.Errorf(farm.CodeNotFound,
				"%s is in the signed list of version %s and not in the directory", name, version)
		}
	}
	return names, nil
}

func verifyFiles(root *os.Root, names []string, sums map[string]string, version string) error {
	for _, name := range names {
		if sums[name] == "" {
			return notListed(name, version)
		}
		sum, err := digest(root, name)
		if err != nil {
			return err
		}
		if sum != sums[name] {
			return farm.Refused("%s is not the file that was signed: its SHA-256 is %s, want %s", name, sum, sums[name])
		}
	}
	return nil
}

func notListed(name, version string) error {
	return farm.Refused("%s is not in the signed list of version %s: the list is of another release, or the file is "+
		"not of this one", name, version)
}

// readLimited reads a whole file of at most limit bytes.
func readLimited(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return raw, err
}
