// Package rpm finds the packages that rpm installed, in the three forms of its database: Berkeley DB,
// ndb and SQLite; and the packages that own files.
//
// It runs no program of rpm, verifies no signature, and writes nothing: a database is read in place.
//
// Invariant: one header is in memory at a time, and all that are read of a database together are not
// larger than the database.
package rpm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/osrelease"
)

// maxPackages limits the packages of a database.
const maxPackages = 100_000

// keyName is the name of the entries for public keys, which are no packages.
const keyName = "gpg-pubkey"

// databaseFiles are the paths of databases: each form in each directory. Fedora and openSUSE moved it below usr,
// and systems made with rpm-ostree have it in usr/share.
var databaseFiles = func() (out []string) {
	for _, dir := range []string{"usr/lib/sysimage/rpm/", "usr/share/rpm/", "var/lib/rpm/"} {
		for _, name := range databaseNames {
			out = append(out, dir+name)
		}
	}
	return out
}()

var databaseNames = []string{"rpmdb.sqlite", "Packages.db", "Packages"}

// Packages reads databases.
type Packages struct{}

var (
	_ catalog.Extractor   = Packages{}
	_ catalog.OwnerFinder = Packages{}

	_ catalog.CompanionReader = Packages{}
)

// Name returns the name of the extractor in warnings.
func (Packages) Name() string { return "rpm/database" }

// Patterns selects databases.
func (Packages) Patterns() catalog.Patterns {
	return catalog.Patterns{Names: databaseNames, PartialRead: true}
}

// FileRequired accepts those in the directories of rpm.
func (Packages) FileRequired(p string) bool {
	_, ok := Packages{}.Root(p)
	return ok
}

// ReadsCompanion accepts the log of a database, and the file with the release.
func (Packages) ReadsCompanion(p string) bool {
	database, ok := strings.CutSuffix(p, logSuffix)
	return ok && Packages{}.FileRequired(database) || osrelease.IsFile(p)
}

// Root returns the root of the system that a database belongs to.
func (Packages) Root(p string) (root string, ok bool) { return osrelease.Root(p, databaseFiles...) }

// Kind returns the kind of the packages.
func (Packages) Kind() catalog.PackageType { return catalog.RPM }

// Extract reads one.
func (Packages) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if err := f.ReserveMemory(); err != nil { // headers and the log may be large
		return nil, err
	}
	root, _ := Packages{}.Root(f.Path)
	distribution := osrelease.Distribution(f.Tree(), root)
	var out []catalog.Package
	err = eachHeader(ctx, database{r, f.Size(), openLog(f.ReadFile, f.Path)}, func(h *header) {
		if p, ok := h.toPackage(); ok {
			p.Distribution = distribution
			out = append(out, p)
		}
	})
	return out, err
}

// Owners reads the files of each package from the databases.
func (Packages) Owners(q *catalog.OwnerSearch) error {
	var errs []error
	for _, name := range q.Databases {
		r, size, closer, err := q.Open(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var buf []byte
		db := database{r, size, openLog(q.ReadFile, name)}
		errs = append(errs, eachHeader(q.Context(), db, func(h *header) {
			if p, ok := h.toPackage(); ok {
				owner := p.OwnerName()
				h.eachFile(func(dir, base []byte) {
					buf = append(append(buf[:0], dir...), base...)
					q.Own(buf, owner)
				})
			}
		}), closer.Close())
	}
	return errors.Join(errs...)
}

// database is an opened database.
type database struct {
	file io.ReaderAt
	size int64                  // bytes
	log  func() ([]byte, error) // of SQLite, which may have newer pages; nil: none
}

// errNotDatabase reports a file of none of the three forms.
var errNotDatabase = errors.New("not a package database of rpm: want Berkeley DB, ndb or SQLite")

// eachHeader calls do for the header of every package. The header is valid only during the call. Without a log that
// cannot be read, the headers are those of an older transaction, and it fails after them.
func eachHeader(ctx context.Context, db database, do func(*header)) error {
	start := make([]byte, 32)
	if n, err := db.file.ReadAt(start, 0); n < len(start) {
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if db.size == 0 {
			return nil // rpm creates it before its first package
		}
		return errNotDatabase
	}
	r := &blobReader{pageReader: pageReader{ctx: ctx, r: db.file, size: db.size}, budget: db.size}
	damaged, count := 0, 0
	var first error
	handle := func(blob []byte) error {
		if count++; count > maxPackages {
			return fmt.Errorf("%w: the database has more than %d packages", catalog.ErrTooLarge, maxPackages)
		}
		h, err := parseHeader(blob)
		if err != nil {
			damaged++
			first = firstError(first, err)
			return nil
		}
		do(h)
		return nil
	}
	var err error
	switch {
	case isSQLite(start):
		var log []byte
		var logErr error
		if db.log != nil {
			log, logErr = db.log()
		}
		err = firstError(logErr, eachSQLite(r, log, handle))
	case isNDB(start):
		err = eachNDB(r, handle)
	case isBerkeleyDB(start) != nil:
		err = eachBerkeleyDB(r, handle)
	default:
		return errNotDatabase
	}
	if err == nil && damaged > 0 {
		err = fmt.Errorf("%d headers of packages are damaged: %w", damaged, first)
	}
	return err
}

// firstError returns the first error.
func firstError(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// toPackage returns the package of a header; false for a public key, and for a header without a name, a version or
// a release.
func (h *header) toPackage() (catalog.Package, bool) {
	name, version, release := h.text(tagName), h.text(tagVersion), h.text(tagRelease)
	if name == "" || version == "" || release == "" || name == keyName {
		return catalog.Package{}, false
	}
	epoch := ""
	if n, ok := h.number(tagEpoch); ok && n != 0 {
		epoch = fmt.Sprint(n, ":")
	}
	p := catalog.Package{
		Kind: catalog.RPM, Name: name, Version: epoch + version + "-" + release, Arch: h.text(tagArch),
	}
	if license := h.text(tagLicense); license != "" && len(license) <= maxLicenseBytes {
		p.Licenses = []string{license}
	}
	p.Source, p.SourceVersion = SplitSource(h.text(tagSourceRPM), version+"-"+release, epoch)
	if p.Source == "" {
		p.Source, p.SourceVersion = p.Name, p.Version
	}
	return p, true
}

// maxLicenseBytes limits the text of a license.
const maxLicenseBytes = 1000

// SplitSource splits the name of a source package, NAME-VERSION-RELEASE.src.rpm. The name has no epoch: it is that of
// the package if both have the same version.
func SplitSource(file, version, epoch string) (name, sourceVersion string) {
	text, ok := strings.CutSuffix(file, ".src.rpm")
	if !ok {
		text, ok = strings.CutSuffix(file, ".nosrc.rpm")
	}
	release := strings.LastIndexByte(text, '-')
	if !ok || release <= 0 {
		return "", ""
	}
	dash := strings.LastIndexByte(text[:release], '-')
	if dash <= 0 {
		return "", ""
	}
	name, sourceVersion = text[:dash], text[dash+1:]
	if sourceVersion == version {
		sourceVersion = epoch + sourceVersion
	}
	return name, sourceVersion
}
