// Package java finds the packages in Java archives: themselves and the archives within them, by the
// pom.properties that Maven leaves, or else by the file's name and the manifest. A package within has
// the path of its archive in that of the outer one as its location: "/srv/app.jar!/BOOT-INF/lib/a-1.0.jar".
//
// It does not read classes, and finds nothing in archives without such data.
//
// Invariant: of one file at most a bounded number of bytes and archives is read, and a bounded memory
// is taken, however deep its archives are nested.
package java

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	scalibr "github.com/google/osv-scalibr/extractor/filesystem/language/java/archive"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/ziplimit"
)

// Limits on what is unpacked of one file.
const (
	maxUnpackedBytes      = 256 << 20 // bytes in all
	maxNestedArchiveBytes = 32 << 20  // bytes of a packed archive within another, which is in memory
	maxMemoryBytes        = 64 << 20  // bytes of all that are in memory at a time
	smallMemoryBytes      = 4 << 20   // bytes of them that may be in memory at any time, see catalog.File.ReserveMemory
	maxNesting            = 6         // nested archives
	maxNestedArchives     = 10_000    // archives within it, at any depth
	maxOpenEntries        = 150_000   // entries of the archives that are open at a time, of 300 bytes each
	maxLocationBytes      = 4 << 10   // bytes of a location
	maxManifestBytes      = 1 << 20   // bytes of a manifest
	maxErrors             = 5         // that are reported for one file
)

// Archives reads archives.
type Archives struct{}

var _ catalog.Extractor = Archives{}

// Name returns the name of the extractor in warnings.
func (Archives) Name() string { return "java/archive" }

var extensions = []string{".jar", ".war", ".ear", ".jmod", ".par", ".sar", ".jpi", ".hpi", ".lpkg", ".nar"}

// Patterns selects archives.
func (Archives) Patterns() catalog.Patterns {
	return catalog.Patterns{Extensions: extensions, PartialRead: true}
}

// FileRequired accepts all.
func (Archives) FileRequired(string) bool { return true }

// Extract reads one.
func (Archives) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	a := &archiveReader{ctx: ctx, file: f, unpackBudget: maxUnpackedBytes, archivesLeft: maxNestedArchives}
	if err := a.readArchive(r, f.Size(), archive{name: f.Path}); err != nil {
		a.addError(err)
	}
	return a.packages, errors.Join(a.errs...)
}

// archiveReader is a file that is being read.
type archiveReader struct {
	ctx          context.Context
	file         *catalog.File
	unpackBudget int64 // bytes that may still be unpacked
	archivesLeft int   // archives within it that may still be read
	memoryBytes  int64 // bytes of packed archives in memory
	openEntries  int   // of the archives that are being read
	packages     []catalog.Package
	errs         []error

	tooLarge bool // one of errs reports that something is too large
}

// archive is one of the archives of a file.
type archive struct {
	name     string // in the outer archive; of the file itself its path
	location string // of the packages in it; "" for the file itself
	depth    int    // 0 for the file itself
}

// within returns the archive of an entry.
func (o archive) within(f *catalog.File, name string) archive {
	inner := archive{name: name, location: o.location, depth: o.depth + 1}
	outer := cmp.Or(o.location, "/"+f.Path)
	location := catalog.WithinArchive(outer, name)
	if len(location) <= maxLocationBytes {
		inner.location = location
	} else if inner.location == "" {
		inner.location = outer
	}
	return inner
}

// addError records an error: at most maxErrors, but always the first for something too large, because
// that means missing data.
func (a *archiveReader) addError(err error) {
	whole := !errors.Is(err, catalog.ErrTooLarge) && !errors.Is(err, ziplimit.ErrTooMany)
	if len(a.errs) < maxErrors || !whole && !a.tooLarge {
		a.errs = append(a.errs, err)
	}
	a.tooLarge = a.tooLarge || !whole
}

// errUnpackedTooLarge stops the reading of a file that unpacks to more than it should.
var errUnpackedTooLarge = fmt.Errorf("%w: it decompresses to more than %d bytes", catalog.ErrTooLarge,
	int64(maxUnpackedBytes))

// readArchive reads an archive and those within it.
func (a *archiveReader) readArchive(r io.ReaderAt, size int64, this archive) error {
	offset, size := skipJMODHeader(r, size)
	section := io.NewSectionReader(r, offset, size)
	z, err := ziplimit.Open(section, size, a.file.ReserveMemory)
	if err == nil && a.openEntries+len(z.File) > maxOpenEntries {
		err = fmt.Errorf("%w: together with those around it more than %d", ziplimit.ErrTooMany, maxOpenEntries)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path.Base(this.name), err)
	}
	a.openEntries += len(z.File)
	defer func() { a.openEntries -= len(z.File) }()
	first := len(a.packages)
	defer func() { a.setLocation(first, this.location) }()
	var poms []catalog.Package
	var man *manifest
	for _, f := range z.File {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		base := path.Base(f.Name)
		switch {
		case strings.HasSuffix(f.Name, "/"):
		case base == "pom.properties":
			poms = append(poms, a.readPOM(f)...)
		case strings.EqualFold(f.Name, "META-INF/MANIFEST.MF"):
			data, err := a.readTextFile(f)
			if err != nil {
				a.addError(fmt.Errorf("%s: %w", f.Name, err))
			}
			man = parseManifest(data) // the first lines are the relevant ones
		case slices.Contains(extensions, strings.ToLower(path.Ext(base))):
			if err := a.readNested(section, f, this); err != nil {
				a.addError(err)
			}
		}
	}
	a.packages = append(a.packages, poms...)
	if len(poms) == 0 {
		a.packages = append(a.packages, guessPackages(this.name, man)...)
	}
	return nil
}

// setLocation sets the location of an archive's packages: those that have none yet, from an index on.
func (a *archiveReader) setLocation(first int, location string) {
	if location == "" {
		return // that of the file
	}
	locations := []string{location} // shared by all packages
	for i := range a.packages[first:] {
		if p := &a.packages[first+i]; p.Locations == nil {
			p.Locations = locations
		}
	}
}

// skipJMODHeader skips the four bytes that the modules of the JDK have before their archive.
func skipJMODHeader(r io.ReaderAt, size int64) (offset, rest int64) {
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err == nil && string(magic[:]) == "JM\x01\x00" {
		return 4, size - 4
	}
	return 0, size
}

// readNested reads an archive within another: in place when it is stored uncompressed, from memory when
// it is packed.
func (a *archiveReader) readNested(outer *io.SectionReader, f *zip.File, parent archive) error {
	if parent.depth+1 >= maxNesting {
		return fmt.Errorf("%s: %w: archives are nested more than %d levels deep", f.Name, catalog.ErrTooLarge,
			maxNesting)
	}
	if a.archivesLeft--; a.archivesLeft < 0 {
		return fmt.Errorf("%s: %w: it has more than %d archives within", f.Name, catalog.ErrTooLarge, maxNestedArchives)
	}
	inner := parent.within(a.file, f.Name)
	size := int64(f.UncompressedSize64)
	if size < 0 || size > a.unpackBudget {
		return fmt.Errorf("%s: %w", f.Name, errUnpackedTooLarge)
	}
	a.unpackBudget -= size
	if f.Method == zip.Store && f.CompressedSize64 == f.UncompressedSize64 {
		off, err := f.DataOffset()
		if err != nil || off > outer.Size()-size {
			return fmt.Errorf("%s: the entry is outside of its archive", f.Name)
		}
		return a.readArchive(io.NewSectionReader(outer, off, size), size, inner)
	}
	if size > maxNestedArchiveBytes || a.memoryBytes+size > maxMemoryBytes {
		return fmt.Errorf("%s: %w: inner archives of more than %d bytes are not read", f.Name, catalog.ErrTooLarge,
			int64(maxNestedArchiveBytes))
	}
	a.memoryBytes += size
	defer func() { a.memoryBytes -= size }()
	if a.memoryBytes > smallMemoryBytes {
		if err := a.file.ReserveMemory(); err != nil {
			return err
		}
	}
	data, err := unpack(f, size, outer.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return a.readArchive(bytes.NewReader(data), int64(len(data)), inner)
}

// maxDeflateRatio is how many bytes a byte of Deflate decompresses to at most.
const maxDeflateRatio = 1032

// unpack reads a file of an archive, up to limit bytes. They are allocated together, unless the file cannot have
// as many, as one of an archive of a size.
func unpack(f *zip.File, limit, archiveSize int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var buf bytes.Buffer
	if packed := f.CompressedSize64; packed > uint64(limit)/maxDeflateRatio && packed <= uint64(archiveSize) {
		buf.Grow(int(limit) + bytes.MinRead)
	}
	_, err = io.Copy(&buf, io.LimitReader(r, limit))
	return buf.Bytes(), err
}

// readTextFile reads a file of an archive that should be short.
func (a *archiveReader) readTextFile(f *zip.File) ([]byte, error) {
	n := min(int64(f.UncompressedSize64), maxManifestBytes)
	if a.unpackBudget -= n; a.unpackBudget < 0 || n < 0 {
		return nil, errUnpackedTooLarge
	}
	return unpack(f, n, 0)
}

// readPOM reads the artifact's properties that Maven wrote.
func (a *archiveReader) readPOM(f *zip.File) []catalog.Package {
	data, err := a.readTextFile(f)
	if err != nil {
		a.addError(fmt.Errorf("%s: %w", f.Name, err))
		return nil
	}
	values := map[string]string{}
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, maxManifestBytes+1)
	for s.Scan() {
		if key, value, ok := strings.Cut(s.Text(), "="); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	group, artifact, version := values["groupId"], values["artifactId"], values["version"]
	if !isCoordinatePart(group) || !isCoordinatePart(artifact) || !isCoordinatePart(version) {
		return nil
	}
	return []catalog.Package{{Kind: catalog.Java, Name: group + ":" + artifact, Version: version}}
}

// isCoordinatePart reports whether a text can be part of a coordinate: no blanks, no placeholders.
func isCoordinatePart(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsAny(s, " \t$%{}@\"'")
}

// guessPackages names an archive without pom.properties by its file's name and its manifest. A name without
// a version is too ambiguous, unless the manifest has everything.
func guessPackages(name string, m *manifest) []catalog.Package {
	var group, artifact, version string
	if p := scalibr.ParseFilename(path.Base(name)); p != nil {
		artifact, version = p.ArtifactID, p.Version
		if group = strings.ToLower(p.GroupID); group == "" {
			group = artifact // as with junit:junit, from before groups were domains
		}
		if m != nil && m.group() != "" {
			group = m.group()
		}
	} else if m != nil {
		group, artifact, version = m.group(), m.artifact(), m.version()
	}
	if g := knownGroups[strings.ToLower(artifact)]; g != "" {
		group, artifact = g, strings.ToLower(artifact)
	}
	// a link of a distribution
	if !isCoordinatePart(group) || !isCoordinatePart(artifact) || !isCoordinatePart(version) ||
		strings.HasSuffix(version, ".x") {
		return nil
	}
	p := catalog.Package{Kind: catalog.Java, Name: group + ":" + artifact, Version: version}
	if m != nil {
		p.Licenses = m.licenses()
	}
	return []catalog.Package{p}
}
