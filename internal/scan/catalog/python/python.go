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

// maxMetadata is how many bytes of a metadata file are read: headers come first, and then a
// description of any length.
const maxMetadata = 1 << 20

// Installed reads metadata.
type Installed struct{}

var _ catalog.Extractor = Installed{}

// Name returns the name of the extractor in warnings.
func (Installed) Name() string { return "python/metadata" }

// Patterns selects the names of metadata and of archives.
func (Installed) Patterns() catalog.Patterns {
	return catalog.Patterns{
		Names: []string{"METADATA", "PKG-INFO"}, Extensions: []string{".egg-info", ".egg", ".whl"},
		Parts: true,
	}
}

// FileRequired accepts metadata in the directories that installers make, and archives.
func (Installed) FileRequired(p string) bool {
	folder := path.Dir(p)
	switch path.Base(p) {
	case "METADATA":
		return strings.HasSuffix(folder, ".dist-info")
	case "PKG-INFO":
		return strings.HasSuffix(folder, ".egg-info") || path.Base(folder) == "EGG-INFO"
	default:
		return !catalog.IsTestData(p)
	}
}

// Extract reads a file of metadata or an archive with one.
func (e Installed) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if ext := strings.ToLower(path.Ext(f.Path)); ext == ".egg" || ext == ".whl" {
		return e.archive(r, f.Size())
	}
	p, err := parse(io.LimitReader(r, maxMetadata))
	if err != nil {
		return nil, err
	}
	return []catalog.Package{p}, nil
}

// archive reads the metadata in an egg or a wheel.
func (e Installed) archive(r io.ReaderAt, size int64) ([]catalog.Package, error) {
	z, err := ziplimit.Open(r, size)
	if err != nil {
		return nil, err
	}
	var out []catalog.Package
	for _, f := range z.File {
		if base := path.Base(f.Name); base != "METADATA" && base != "PKG-INFO" || !e.FileRequired(f.Name) ||
			strings.Count(f.Name, "/") != 1 {
			continue
		}
		p, err := member(f)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

func member(f *zip.File) (catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return catalog.Package{}, err
	}
	defer r.Close()
	return parse(io.LimitReader(r, maxMetadata))
}

// parse reads the headers of metadata: lines of "Key: value" up to the first empty one.
func parse(r io.Reader) (catalog.Package, error) {
	p := catalog.Package{Kind: catalog.Python}
	var license, expression string
	var classifiers []string
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxMetadata+1)
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
			p.Name = first(p.Name, text)
		case "version":
			p.Version = first(p.Version, text)
		case "license":
			license = first(license, text)
		case "license-expression":
			expression = first(expression, text)
		case "classifier":
			if c, ok := strings.CutPrefix(text, "License :: OSI Approved :: "); ok {
				classifiers = append(classifiers, c)
			}
		}
	}
	if err := s.Err(); err != nil {
		return p, fmt.Errorf("reading its headers: %w", err)
	}
	if p.Name == "" || p.Version == "" {
		return p, errors.New("it names no package or no version")
	}
	p.Licenses = licenses(expression, license, classifiers)
	return p, nil
}

// first returns had, or now if had is empty.
func first(had, now string) string {
	if had != "" {
		return had
	}
	return now
}

// licenses prefers an expression; a full license text in that field is ignored.
func licenses(expression, license string, classifiers []string) []string {
	switch {
	case expression != "":
		return []string{expression}
	case license != "" && license != "UNKNOWN" && len(license) <= 80:
		return []string{license}
	default:
		return classifiers
	}
}
