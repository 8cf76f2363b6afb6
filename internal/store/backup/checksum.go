package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// sectorSize divides the length of a database.
const sectorSize = 512

// ErrIncomplete means that a file, or a stream, is not a complete backup.
var ErrIncomplete = errors.New("the backup is damaged or incomplete")

// ChecksumWriter verifies a backup that is written through it in parts. The zero value is not
// usable; NewChecksumWriter creates one.
type ChecksumWriter struct {
	hash hash.Hash
	tail []byte // the last bytes, which may be the checksum; at most sha256.Size
	size int64  // of all that was written
}

// NewChecksumWriter creates a ChecksumWriter without any data.
func NewChecksumWriter() *ChecksumWriter { return &ChecksumWriter{hash: sha256.New()} }

// Write adds the next bytes; it never fails.
func (s *ChecksumWriter) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	s.tail = append(s.tail, p...)
	if over := len(s.tail) - sha256.Size; over > 0 {
		_, _ = s.hash.Write(s.tail[:over]) // a hash never fails
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	return len(p), nil
}

// Err returns why the written data is not a complete backup; nil when it is one.
func (s *ChecksumWriter) Err() error {
	if s.size%sectorSize != sha256.Size {
		return fmt.Errorf("%w: it is cut off after %d bytes", ErrIncomplete, s.size)
	}
	if !bytes.Equal(s.hash.Sum(nil), s.tail) {
		return fmt.Errorf("%w: its content does not match its checksum", ErrIncomplete)
	}
	return nil
}

// Size returns the number of bytes that were written.
func (s *ChecksumWriter) Size() int64 { return s.size }

// Digest returns the SHA-256 of the database in hexadecimal digits; the last 32 bytes of the file.
func (s *ChecksumWriter) Digest() string { return hex.EncodeToString(s.tail) }

// VerifyFile reads a file and reports whether it is a complete backup.
func VerifyFile(path string) (*ChecksumWriter, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the backup: %w", err)
	}
	defer func() { _ = file.Close() }()
	sum := NewChecksumWriter()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if err := sum.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sum, nil
}
