package luks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	magicFirst     = "LUKS\xba\xbe"
	magicSecond    = "SKUL\xba\xbe"
	binaryBytes    = 4096 // of the header of version 2 before its JSON
	checksumAt     = 448
	checksumBytes  = 64
	minHeaderBytes = 16 << 10
	maxHeaderBytes = 4 << 20
)

// IsContainer reports whether a device that begins with some bytes is encrypted with LUKS.
func IsContainer(beginning []byte) bool { return bytes.HasPrefix(beginning, []byte(magicFirst)) }

// Container is a device that is encrypted with LUKS. It is safe for concurrent use.
type Container struct {
	r       io.ReaderAt
	size    int64
	slots   []keySlot // in the order in which they are tried
	unread  []error   // why other key slots cannot be used
	segment segment
}

// keySlot has the volume key, encrypted with a key derived from a passphrase.
type keySlot struct {
	name      string
	kdf       derivation
	keyBytes  int // of the volume key
	stripes   int
	hash      string // of the stripes
	areaStart int64  // in bytes
	areaBytes int64
	areaKey   int // length of the key of the area in bytes
	digest    digest
}

// digest identifies a volume key.
type digest struct {
	pbkdf2 derivation
	want   []byte
}

// segment is the encrypted data.
type segment struct {
	start, length int64 // in bytes
	sectorBytes   int
	firstIV       uint64 // of the first sector, in units of 512 bytes
}

// errDetached reports a header whose data is on another device.
var errDetached = unsupported("a LUKS header apart from its data is not supported here")

// Open reads the header of a device. Its error says why a container cannot be read whatever the key is.
func Open(r io.ReaderAt, size int64) (*Container, error) {
	var b [8]byte
	if err := readFullAt(r, b[:], 0); err != nil {
		return nil, err
	}
	c := &Container{r: r, size: size}
	if !IsContainer(b[:]) {
		return nil, damaged("it has no header of LUKS")
	}
	switch version := binary.BigEndian.Uint16(b[6:]); version {
	case 1:
		return c, c.readHeader1()
	case 2:
		return c, c.readHeader2()
	default:
		return nil, fmt.Errorf("unsupported version %d of LUKS", version)
	}
}

// readHeader2 reads the newer of the two headers of version 2 that is intact.
func (c *Container) readHeader2() error {
	text, sequence, err := c.readCopy(0, magicFirst)
	for at := int64(minHeaderBytes); at <= maxHeaderBytes; at *= 2 {
		other, n, otherErr := c.readCopy(at, magicSecond)
		if otherErr == nil && (err != nil || n > sequence) {
			text, sequence, err = other, n, nil
		}
	}
	if err != nil {
		return err
	}
	return c.parseJSON(text)
}

// readCopy reads a header of version 2: its JSON, and the number of the change that it is from.
func (c *Container) readCopy(at int64, magic string) (text []byte, sequence uint64, err error) {
	b := make([]byte, binaryBytes)
	if err := readFullAt(c.r, b, at); err != nil {
		return nil, 0, err
	}
	be := binary.BigEndian
	if !bytes.HasPrefix(b, []byte(magic)) || be.Uint16(b[6:]) != 2 {
		return nil, 0, damaged("it has no header of LUKS at byte %d", at)
	}
	length := be.Uint64(b[8:])
	if length < minHeaderBytes || length > maxHeaderBytes || length&(length-1) != 0 ||
		be.Uint64(b[256:]) != uint64(at) || at != 0 && uint64(at) != length || int64(length) > c.size-at {
		return nil, 0, damaged("its LUKS header at byte %d has %d bytes", at, length)
	}
	algorithm := cString(b[72:104])
	newHash := hashes[algorithm]
	if newHash == nil {
		return nil, 0, fmt.Errorf("unsupported checksum %q of the LUKS header", algorithm)
	}
	b = append(b, make([]byte, length-binaryBytes)...)
	if err := readFullAt(c.r, b[binaryBytes:], at+binaryBytes); err != nil {
		return nil, 0, err
	}
	sum := bytes.Clone(b[checksumAt : checksumAt+checksumBytes])
	clear(b[checksumAt : checksumAt+checksumBytes])
	h := newHash()
	h.Write(b)
	if !bytes.Equal(h.Sum(nil), sum[:h.Size()]) {
		return nil, 0, damaged("its LUKS header at byte %d is not what its checksum says", at)
	}
	text, _, _ = bytes.Cut(b[binaryBytes:], []byte{0})
	return text, be.Uint64(b[16:]), nil
}

// cString returns the text before the first zero.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// readFullAt reads all of p.
func readFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
