package release

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// The files in a directory of packages, in addition to the packages.
const (
	ManifestFile = "manifest"     // one statement per line; lines that begin with # are comments
	KeysFile     = "packages.pub" // public keys of the signers, which nodes receive when they join
)

// maxManifestBytes limits the size of the manifest and of the keys, in bytes.
const maxManifestBytes = 64 << 10

// SignDir signs every package of a directory as a version, and replaces the manifest. It returns
// the signed packages. A package that contains its version is refused for another one, as nodes would
// refuse it. With version "" such packages are signed as what they contain, others as the version unknown.
// Two concurrent runs do no harm: the manifest of one of them remains, complete.
func SignDir(key ed25519.PrivateKey, dir, version, unknown string) ([]api.AgentPackage, error) {
	var list []api.AgentPackage
	var text strings.Builder
	text.WriteString(
		"# Statements about the agent packages in this directory, each signed. Made by: buildyard package sign\n")
	for _, platform := range Platforms {
		path := filepath.Join(dir, platform.PackageFile())
		signed, err := versionToSign(path, version, unknown)
		p := api.AgentPackage{Version: signed, OS: platform.OS, Arch: platform.Arch}
		if err == nil {
			p, err = signFile(key, path, p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform.PackageFile(), err)
		}
		list = append(list, p)
		text.WriteString(p.Signed + "\n")
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no agent package in %s: want a name such as %s", dir, Platforms[0].PackageFile())
	}
	return list, replaceFile(filepath.Join(dir, ManifestFile), text.String())
}

// versionToSign returns the version to sign a package as; see SignDir.
func versionToSign(path, version, unknown string) (string, error) {
	packaged, err := packagedVersion(path)
	if err == nil && version != "" && packaged != "" && version != packaged {
		err = fmt.Errorf("its program has version %s, not %s: sign it without --version", packaged, version)
	}
	return cmp.Or(version, packaged, unknown), err
}

// signFile returns the signed statement about a package.
func signFile(key ed25519.PrivateKey, path string, p api.AgentPackage) (api.AgentPackage, error) {
	f, err := os.Open(path)
	if err != nil {
		return p, err
	}
	defer func() { _ = f.Close() }()
	if p.Size, p.SHA256, err = Digest(f); err != nil {
		return p, err
	}
	text, err := Sign(key, p)
	if err != nil {
		return p, err
	}
	return Parse(text)
}

// replaceFile writes a file completely, readable by all.
func replaceFile(path, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ReadManifest reads the statements of a directory without verifying them.
func ReadManifest(dir string) ([]api.AgentPackage, error) {
	raw, err := readBounded(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	var list []api.AgentPackage
	seen := map[string]bool{}
	no := 0
	for line := range strings.Lines(string(raw)) {
		no++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		p, err := Parse(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d of the manifest: %w", no, err)
		case seen[p.Name]:
			return nil, fmt.Errorf("line %d of the manifest is a second entry for %s", no, p.Name)
		}
		seen[p.Name] = true
		list = append(list, p)
	}
	return list, nil
}

// PublicKeys reads the public keys for nodes; "" when the file is missing.
func PublicKeys(dir string) (string, error) {
	raw, err := readBounded(filepath.Join(dir, KeysFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(bytes.TrimSpace(raw)), err
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err == nil && len(raw) > maxManifestBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxManifestBytes)
	}
	return raw, err
}

// CheckFile reports whether a file is the one that was signed.
func CheckFile(path string, p api.AgentPackage) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size, sum, err := Digest(f)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	if size != p.Size || sum != p.SHA256 {
		return fmt.Errorf("%s does not match its signature", p.Name)
	}
	return nil
}
