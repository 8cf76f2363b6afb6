// Package ziplimit opens untrusted zip archives.
//
// It is not a zip reader: it checks the size of the archive's list of files, as the archive states
// it, before the standard library reads that list into memory.
//
// Invariant: no archive is opened whose list of files takes more than a bounded memory.
package ziplimit

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Limits of an archive's list of files.
const (
	MaxFiles = 100_000
	maxList  = 10 << 20 // bytes
)

// ErrTooMany reports an archive with more files than any benign one.
var ErrTooMany = errors.New("the archive holds too many files")

// Sizes of the records at the end of an archive, as the format defines them.
const (
	endSize   = 22
	end64Size = 56
	locSize   = 20
	comment   = 1<<16 - 1
)

// Open opens an archive.
func Open(r io.ReaderAt, size int64) (*zip.Reader, error) {
	files, list, err := end(r, size)
	if err != nil {
		return nil, err
	}
	if files > MaxFiles || list > maxList {
		return nil, fmt.Errorf("%w: %d", ErrTooMany, files)
	}
	// The standard library reads entries until they end, whatever number the archive stated.
	b := &bounded{r: r, left: maxList + 1<<20}
	z, err := zip.NewReader(b, size)
	b.left = math.MaxInt64
	if b.over {
		return nil, fmt.Errorf("%w: more than it says", ErrTooMany)
	}
	return z, err
}

// end returns the number of files, and the size of their list, from the last record of an archive.
func end(r io.ReaderAt, size int64) (files, list uint64, err error) {
	n := min(size, endSize+comment)
	if n < endSize {
		return 0, 0, zip.ErrFormat
	}
	tail := make([]byte, n)
	if _, err := r.ReadAt(tail, size-n); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	for i := len(tail) - endSize; i >= 0; i-- {
		if string(tail[i:i+4]) != "PK\x05\x06" {
			continue
		}
		if int(binary.LittleEndian.Uint16(tail[i+20:])) > len(tail)-i-endSize {
			continue
		}
		files, list = uint64(binary.LittleEndian.Uint16(tail[i+10:])), uint64(binary.LittleEndian.Uint32(tail[i+12:]))
		if files == 0xffff || list == 0xffffffff || binary.LittleEndian.Uint32(tail[i+16:]) == 0xffffffff {
			return end64(r, size-n+int64(i), files, list)
		}
		return files, list, nil
	}
	return 0, 0, zip.ErrFormat
}

// end64 reads the same from the larger record that precedes the last one in a large archive.
func end64(r io.ReaderAt, last int64, files, list uint64) (uint64, uint64, error) {
	var loc [locSize]byte
	if last < locSize {
		return files, list, nil
	}
	if _, err := r.ReadAt(loc[:], last-locSize); err != nil {
		return 0, 0, err
	}
	at := int64(binary.LittleEndian.Uint64(loc[8:]))
	if string(loc[:4]) != "PK\x06\x07" {
		return files, list, nil
	}
	var rec [end64Size]byte
	if at < 0 || at > last-end64Size {
		return 0, 0, zip.ErrFormat
	}
	if _, err := r.ReadAt(rec[:], at); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint64(rec[32:]), binary.LittleEndian.Uint64(rec[40:]), nil
}

// bounded is a reader that limits how many bytes are read while the list is.
type bounded struct {
	r    io.ReaderAt
	left int64
	over bool
}

func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	if b.left != math.MaxInt64 {
		if b.left -= int64(len(p)); b.left < 0 {
			b.over = true
			return 0, ErrTooMany
		}
	}
	return b.r.ReadAt(p, off)
}
