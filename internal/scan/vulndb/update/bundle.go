package update

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// A bundle transports a database to a machine without network access: a tar archive, compressed
// with zstd, of the listing and the database, in this order.
const (
	bundleListing  = "listing.json"
	bundleDatabase = "vuln.db"
	bundleWindow   = 32 << 20
)

// Export verifies the database at a path and writes it to w as a bundle, with its original
// signature.
func Export(ctx context.Context, path string, w io.Writer) (Listing, error) {
	l, err := describeDatabase(ctx, path)
	if err != nil {
		return l, fmt.Errorf("export the vulnerability database: %w", err)
	}
	l.Path = bundleDatabase
	for _, was := range dbLocation(path).loadState().possibleListings() {
		if was.Checksum == l.Checksum && was.Size == l.Size && was.Signature != "" {
			l.Signature = was.Signature
		}
	}
	if err := writeBundle(path, l, w); err != nil {
		return l, fmt.Errorf("export the vulnerability database: %w", err)
	}
	return l, nil
}

func writeBundle(path string, l Listing, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	head := func(name string, size int64) error {
		return t.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o644, ModTime: l.Built, Format: tar.FormatPAX})
	}
	if err := head(bundleListing, int64(len(b))); err != nil {
		return err
	}
	if _, err := t.Write(b); err != nil {
		return err
	}
	if err := head(bundleDatabase, l.Size); err != nil {
		return err
	}
	if _, err := io.CopyN(t, f, l.Size); err != nil {
		return err
	}
	return errors.Join(t.Close(), z.Close())
}

// Import verifies a bundle, or the file of a database, and makes it the database of Target. It
// accepts older ones too. With a key, only a signed bundle is accepted.
func Import(ctx context.Context, file string, o Options) (Status, error) {
	o = o.withDefaults()
	p := dbLocation(o.Target)
	release, err := p.acquireLock(ctx, o.LockTimeout)
	if err == nil {
		defer release()
		err = p.importFile(ctx, file, o)
	}
	if err != nil {
		s, _ := CurrentStatus(o.Target)
		s.Outcome = Failed
		return s, fmt.Errorf("import %s: %w", file, err)
	}
	s, err := CurrentStatus(o.Target)
	s.Outcome = Updated
	return s, err
}

// importFile copies a file into the directory of the database, verifies it and puts it in place.
func (p dbLocation) importFile(ctx context.Context, file string, o Options) error {
	f, err := input.Open(ctx, file)
	if err != nil {
		return err
	}
	defer f.Close()
	temp, err := atomicfile.Create(string(p))
	if err != nil {
		return err
	}
	defer temp.Discard()
	l, err := unbundle(bufio.NewReaderSize(f, 64<<10), temp, o)
	if err != nil {
		return err
	}
	info, err := verifyDatabase(ctx, temp.Name())
	if err != nil {
		return err
	}
	if l.Built.IsZero() { // a bare file: its listing has no signature
		l.Schema, l.Built = info.Schema, info.Built
	}
	if !info.Built.Equal(l.Built) {
		return fmt.Errorf("the database was built at %s, but its listing has the build time %s", info.Built, l.Built)
	}
	_, st := p.loadStatus()
	st.PartListing = l
	_ = os.Remove(p.partPath()) // a partial download is obsolete
	if err := writeJSON(p.statePath(), st); err != nil {
		return err
	}
	if err := temp.Commit(); err != nil {
		return err
	}
	return writeJSON(p.statePath(), checkState{URL: st.URL, Listing: l})
}

// unbundle copies the database in a file to temp. The listing of a bare database has only what
// follows from its bytes. The file may be a pipe.
func unbundle(f *bufio.Reader, temp io.Writer, o Options) (Listing, error) {
	mark, err := f.Peek(8)
	if errors.Is(err, io.EOF) {
		return Listing{}, errors.New("not a vulnerability database or an exported bundle")
	}
	if err != nil {
		return Listing{}, err
	}
	if string(mark[:4]) == "\x28\xb5\x2f\xfd" { // zstd
		return readBundle(f, temp, o)
	}
	if len(o.Key) > 0 {
		return Listing{}, fmt.Errorf("%w: a database file has no signature, but db-key is set; import a signed bundle",
			ErrInvalidSignature)
	}
	if !vulndb.HasMagic(mark) {
		return Listing{}, errors.New("not a vulnerability database or an exported bundle")
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(temp, h), io.LimitReader(f, o.MaxSize+1))
	if err == nil && n > o.MaxSize {
		err = fmt.Errorf("the database file has more than %d bytes", o.MaxSize)
	}
	return Listing{Checksum: formatChecksum(h.Sum(nil)), Size: n}, err
}

func readBundle(f io.Reader, temp io.Writer, o Options) (Listing, error) {
	z, err := zstd.NewReader(f, zstd.WithDecoderMaxMemory(bundleWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return Listing{}, err
	}
	defer z.Close()
	t := tar.NewReader(z)
	if err := nextMember(t, bundleListing); err != nil {
		return Listing{}, err
	}
	b, err := io.ReadAll(io.LimitReader(t, maxListingBytes))
	if err != nil {
		return Listing{}, err
	}
	l, err := ParseListing(b, o.MaxSize)
	if err == nil {
		err = l.verify(o.Key)
	}
	if err != nil {
		return Listing{}, err
	}
	if err := nextMember(t, bundleDatabase); err != nil {
		return Listing{}, err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(temp, h), io.LimitReader(t, l.Size+1))
	if err != nil {
		return Listing{}, err
	}
	if n != l.Size || formatChecksum(h.Sum(nil)) != l.Checksum {
		return Listing{}, fmt.Errorf("%w: the database in the bundle does not match its listing", ErrChecksumMismatch)
	}
	return l, readToEnd(t, z)
}

// readToEnd reads the rest of a bundle, so that its own checksum is verified.
func readToEnd(t *tar.Reader, z io.Reader) error {
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return errors.New("the bundle has extra data after the database")
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(z, maxListingBytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrChecksumMismatch, err)
	}
	return nil
}

// nextMember advances to the next file of a bundle, which must have the name.
func nextMember(t *tar.Reader, name string) error {
	h, err := t.Next()
	if err != nil || h.Name != name || h.Typeflag != tar.TypeReg {
		return fmt.Errorf("invalid bundle: %s expected", name)
	}
	return nil
}
