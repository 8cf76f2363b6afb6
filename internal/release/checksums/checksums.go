// Package checksums is the signed list of the files of a release: SHA256SUMS, in the form of sha256sum, and its
// signature in the form of minisign, whose trusted comment has the version of the release.
//
// It is neither about the statements that nodes require of agent packages, nor does it download anything.
//
// Invariant: Verify succeeds only if a trusted key signed the list, and each file has the size and digest it had when
// the list was written.
package checksums

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files that are about the others.
const (
	ListFile      = "SHA256SUMS"
	SignatureFile = "SHA256SUMS.minisig"
	// KeySuffix ends the names of public keys. They are in no list: a key that comes with the files proves nothing.
	KeySuffix = ".pub"
)

const (
	maxListBytes      = 1 << 20
	maxSignatureBytes = 4096
	maxFiles          = 1000
)

// entry is a line of a list.
type entry struct{ name, sum string }

// WriteList writes the list of all files of a directory and returns their names.
func WriteList(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ListFile, err)
	}
	defer root.Close()
	names, err := fileNames(root)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, name := range names {
		sum, err := digest(root, name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	if err := root.WriteFile(ListFile, text.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("write %s: %w", ListFile, err)
	}
	return names, nil
}

// fileNames returns the sorted names of the files of a release, without those that are about the others.
func fileNames(root *os.Root) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read the release: %w", err)
	}
	var names []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == ListFile || name == SignatureFile || strings.HasSuffix(name, KeySuffix):
		case !e.Type().IsRegular():
			return nil, fmt.Errorf("%s is not a file: a release has only files", name)
		default:
			names = append(names, name)
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("a release has at most %d files, not %d", maxFiles, len(names))
	}
	slices.Sort(names)
	return names, nil
}

// digest returns the SHA-256 of a file, in hex.
func digest(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", fmt.Errorf("open a file of the release: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// parseList reads a list. Names with a directory are refused, and so are two lines about one file.
func parseList(raw []byte) (map[string]string, error) {
	sums := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		e, err := parseLine(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", ListFile, len(sums)+1, err)
		}
		if _, again := sums[e.name]; again {
			return nil, fmt.Errorf("%s, line %d: a second line about %s", ListFile, len(sums)+1, e.name)
		}
		if sums[e.name] = e.sum; len(sums) > maxFiles {
			return nil, fmt.Errorf("%s has more than %d lines", ListFile, maxFiles)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", ListFile, err)
	}
	if len(sums) == 0 {
		return nil, errors.New(ListFile + " is empty")
	}
	return sums, nil
}

func parseLine(line string) (entry, error) {
	sum, name, found := strings.Cut(line, "  ")
	raw, err := hex.DecodeString(sum)
	if !found || err != nil || len(raw) != sha256.Size || sum != strings.ToLower(sum) {
		return entry{}, errors.New("want the SHA-256 in hex, two spaces and the name of a file")
	}
	if name == "" || name == "." || name == ".." || name != filepath.Base(name) || strings.ContainsAny(name, "/\\") {
		return entry{}, fmt.Errorf("invalid file name %q", name)
	}
	return entry{name, sum}, nil
}
