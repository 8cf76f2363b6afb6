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
	MaxFiles          = 100_000
	maxDirectoryBytes = 10 << 20 // bytes
)

// smallDirectoryBytes is the size of a list of files that may be in memory at any time: decoded it takes six times as
// much.
const smallDirectoryBytes = 1 << 20

// ErrTooMany reports an archive with more files than any benign one.
var ErrTooMany = errors.New("the archive has too many files")

// Sizes of the records at the end of an archive, as the format defines them.
const (
	endRecordSize    = 22
	zip64EndSize     = 56
	zip64LocatorSize = 20
	maxCommentBytes  = 1<<16 - 1
)

// Open opens an archive. Before a long list of files is read, reserve is called, and its error returned.
func Open(r io.ReaderAt, size int64, reserve func() error) (*zip.Reader, error) {
	files, list, err := readEndRecord(r, size)
	if err != nil {
		return nil, err
	}
	if files > MaxFiles || list > maxDirectoryBytes {
		return nil, fmt.Errorf("%w: %d", ErrTooMany, files)
	}
	if list > smallDirectoryBytes {
		if err := reserve(); err != nil {
			return nil, err
		}
	}
	// The standard library reads entries until they end, whatever number the archive stated.
	b := &boundedReader{r: r, bytesLeft: int64(max(list, smallDirectoryBytes)) + smallDirectoryBytes}
	z, err := zip.NewReader(b, size)
	b.bytesLeft = math.MaxInt64
	if b.limitExceeded {
		return nil, fmt.Errorf("%w: more than its header declares", ErrTooMany)
	}
	return z, err
}

// readEndRecord returns the number of files, and the size of their list, from the last record of an archive.
func readEndRecord(r io.ReaderAt, size int64) (files, list uint64, err error) {
	n := min(size, endRecordSize+maxCommentBytes)
	if n < endRecordSize {
		return 0, 0, zip.ErrFormat
	}
	tail := make([]byte, n)
	if _, err := r.ReadAt(tail, size-n); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	for i := len(tail) - endRecordSize; i >= 0; i-- {
		if string(tail[i:i+4]) != "PK\x05\x06" {
			continue
		}
		if int(binary.LittleEndian.Uint16(tail[i+20:])) > len(tail)-i-endRecordSize {
			continue
		}
		files, list = uint64(binary.LittleEndian.Uint16(tail[i+10:])), uint64(binary.LittleEndian.Uint32(tail[i+12:]))
		if files == 0xffff || list == 0xffffffff || binary.LittleEndian.Uint32(tail[i+16:]) == 0xffffffff {
			return readZip64End(r, size-n+int64(i), files, list)
		}
		return files, list, nil
	}
	return 0, 0, zip.ErrFormat
}

// readZip64End reads the same from the larger record that precedes the last one in a large archive.
func readZip64End(r io.ReaderAt, last int64, files, list uint64) (uint64, uint64, error) {
	var loc [zip64LocatorSize]byte
	if last < zip64LocatorSize {
		return files, list, nil
	}
	if _, err := r.ReadAt(loc[:], last-zip64LocatorSize); err != nil {
		return 0, 0, err
	}
	at := int64(binary.LittleEndian.Uint64(loc[8:]))
	if string(loc[:4]) != "PK\x06\x07" {
		return files, list, nil
	}
	var rec [zip64EndSize]byte
	if at < 0 || at > last-zip64EndSize {
		return 0, 0, zip.ErrFormat
	}
	if _, err := r.ReadAt(rec[:], at); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint64(rec[32:]), binary.LittleEndian.Uint64(rec[40:]), nil
}

// boundedReader is a reader that limits how many bytes are read while the list is.
type boundedReader struct {
	r             io.ReaderAt
	bytesLeft     int64
	limitExceeded bool
}

func (b *boundedReader) ReadAt(p []byte, off int64) (int, error) {
	if b.bytesLeft != math.MaxInt64 {
		if b.bytesLeft -= int64(len(p)); b.bytesLeft < 0 {
			b.limitExceeded = true
			return 0, ErrTooMany
		}
	}
	return b.r.ReadAt(p, off)
}
