// Package supportbundle writes archives with what an operator sends with a question.
//
// It masks secrets and bounds sizes; what is in an archive is chosen by the commands that write one. It reads nothing
// itself. An entry is one file of the archive.
//
// Invariant: no byte reaches the archive that has not passed the masking of secrets.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Limits of an archive.
const (
	MaxEntryBytes   = 4 << 20  // of an entry; the beginning of a longer one is left out
	DefaultMaxBytes = 32 << 20 // of all entries, before compression
	reservedBytes   = 64 << 10 // for the list of problems
)

// Options configure an archive.
type Options struct {
	Dir      string    // the directory of all entries
	Time     time.Time // of the entries
	Secrets  []string  // values that are masked wherever they occur
	MaxBytes int64     // of all entries; 0: DefaultMaxBytes
}

// Bundle is an archive that is being written. It is used by one goroutine.
type Bundle struct {
	opts     Options
	mask     *masker
	zip      *gzip.Writer
	tar      *tar.Writer
	left     int64 // bytes
	problems []string
	err      error // of the first write that failed
}

// New returns a bundle that writes to w, a tar.gz.
func New(w io.Writer, o Options) *Bundle {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	zip := gzip.NewWriter(w)
	return &Bundle{
		opts: o, mask: newMasker(o.Secrets), zip: zip, tar: tar.NewWriter(zip), left: o.MaxBytes - reservedBytes,
	}
}

// Add adds an entry. An error of find is a problem, which the archive lists; what was read before it is added.
func (b *Bundle) Add(name string, find func() ([]byte, error)) {
	text, err := find()
	if err != nil {
		b.problems = append(b.problems, name+": "+err.Error())
	}
	if len(text) == 0 {
		return
	}
	text = b.mask.mask(text)
	if over := len(text) - MaxEntryBytes; over > 0 {
		text = text[over:]
		b.problems = append(b.problems, fmt.Sprintf("%s: the first %d bytes are left out", name, over))
	}
	if int64(len(text)) > b.left {
		b.problems = append(b.problems,
			fmt.Sprintf("%s: left out: the limit of the archive (%d bytes) is reached", name, b.opts.MaxBytes))
		return
	}
	b.left -= int64(len(text))
	b.write(name, text)
}

// write writes masked bytes.
func (b *Bundle) write(name string, text []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{
		Name: path.Join(b.opts.Dir, path.Clean("/"+name)), Mode: 0o600, Size: int64(len(text)),
		ModTime: b.opts.Time, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
	})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// Problems returns what could not be read or was left out, masked.
func (b *Bundle) Problems() []string {
	out := make([]string, len(b.problems))
	for i, p := range b.problems {
		out[i] = string(b.mask.mask([]byte(p)))
	}
	return out
}

// Close adds the list of problems and ends the archive. It does not close the writer below.
func (b *Bundle) Close() error {
	list := strings.Join(b.Problems(), "\n")
	if list == "" {
		list = "none"
	}
	b.write("problems.txt", append(bytes.TrimSpace([]byte(list[:min(len(list), reservedBytes/2)])), '\n'))
	if err := b.tar.Close(); b.err == nil {
		b.err = err
	}
	if err := b.zip.Close(); b.err == nil {
		b.err = err
	}
	if b.err != nil {
		return fmt.Errorf("write support bundle: %w", b.err)
	}
	return nil
}
