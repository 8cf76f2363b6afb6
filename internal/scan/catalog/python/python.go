// Package python finds installed Python packages by the metadata that installers leave:
// *.dist-info, *.egg-info, eggs and wheels.
//
// It does not read lock files or lists of requirements.
//
// Invariant: of an archive only its metadata is opened, and never more than a bounded part.
package python

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/ziplimit"
)

// maxMetadataBytes is how many bytes of a metadata file are read: headers come first, and then a
// description of any length.
const maxMetadataBytes = 1 << 20

// InstalledPackages reads metadata.
type InstalledPackages struct{}

var _ catalog.Extractor = InstalledPackages{}

// Name returns the name of the extractor in warnings.
func (InstalledPackages) Name() string { return "python/metadata" }

// Patterns selects the names of metadata and of archives.
func (InstalledPackages) Patterns() catalog.Patterns {
	return catalog.Patterns{
		Names: []string{"METADATA", "PKG-INFO"}, Extensions: []string{".egg-info", ".egg", ".whl"},
		PartialRead: true,
	}
}

// FileRequired accepts metadata in the directories that installers make, and archives.
func (InstalledPackages) FileRequired(p string) bool {
	dir := path.Dir(p)
	switch path.Base(p) {
	case "METADATA":
		return strings.HasSuffix(dir, ".dist-info")
	case "PKG-INFO":
		return strings.HasSuffix(dir, ".egg-info") || path.Base(dir) == "EGG-INFO"
	default:
		return !catalog.IsTestData(p)
	}
}

// Extract reads a file of metadata or an archive with one.
func (e InstalledPackages) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if ext := strings.ToLower(path.Ext(f.Path)); ext == ".egg" || ext == ".whl" {
		return e.readArchive(r, f.Size(), f.ReserveMemory)
	}
	p, err := parseMetadata(io.LimitReader(r, maxMetadataBytes))
	if err != nil {
		return nil, err
	}
	return []catalog.Package{p}, nil
}

// readArchive reads the metadata in an egg or a wheel.
func (e InstalledPackages) readArchive(r io.ReaderAt, size int64, reserve func() error) ([]catalog.Package, error) {
	z, err := ziplimit.Open(r, size, reserve)
	if err != nil {
		return nil, err
	}
	var out []catalog.Package
	for _, f := range z.File {
		if base := path.Base(f.Name); base != "METADATA" && base != "PKG-INFO" || !e.FileRequired(f.Name) ||
			strings.Count(f.Name, "/") != 1 {
			continue
		}
		p, err := readMetadataFile(f)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

func readMetadataFile(f *zip.File) (catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return catalog.Package{}, err
	}
	defer r.Close()
	return parseMetadata(io.LimitReader(r, maxMetadataBytes))
}

// parseMetadata reads the headers of metadata: lines of "Key: value" up to the first empty one.
func parseMetadata(r io.Reader) (catalog.Package, error) {
	p := catalog.Package{Kind: catalog.Python}
	var license, expression string
	var classifiers []string
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxMetadataBytes+1)
	for s.Scan() {
		line := bytes.TrimSuffix(s.Bytes(), []byte("\r"))
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(key) == 0 || key[0] == ' ' || key[0] == '\t' {
			continue // continuation of the line before
		}
		text := strings.TrimSpace(string(value))
		switch strings.ToLower(string(key)) {
		case "name":
			p.Name = firstNonEmpty(p.Name, text)
		case "version":
			p.Version = firstNonEmpty(p.Version, text)
		case "license":
			license = firstNonEmpty(license, text)
		case "license-expression":
			expression = firstNonEmpty(expression, text)
		case "classifier":
			if c, ok := strings.CutPrefix(text, "License :: OSI Approved :: "); ok {
				classifiers = append(classifiers, c)
			}
		}
	}
	if err := s.Err(); err != nil {
		return p, fmt.Errorf("read the metadata headers: %w", err)
	}
	if p.Name == "" || p.Version == "" {
		return p, errors.New("name or version of the package is missing")
	}
	p.Licenses = chooseLicenses(expression, license, classifiers)
	return p, nil
}

// firstNonEmpty returns had, or now if had is empty.
func firstNonEmpty(had, now string) string {
	if had != "" {
		return had
	}
	return now
}

// chooseLicenses prefers an expression; a full license text in that field is ignored.
func chooseLicenses(expression, license string, classifiers []string) []string {
	switch {
	case expression != "":
		return []string{expression}
	case license != "" && license != "UNKNOWN" && len(license) <= 80:
		return []string{license}
	default:
		return classifiers
	}
}
