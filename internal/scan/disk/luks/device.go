package luks

import (
	"crypto/aes"
	"errors"
	"io"

	"golang.org/x/crypto/xts"
)

const (
	sectorBytes    = 512
	maxSectorBytes = 4096
)

// checkCipher returns an error for data that is encrypted in another way, or with a key of another length.
func checkCipher(name string, keyBytes int64) error {
	if name != supportedCipher {
		return unsupported("the cipher %q is not supported here, only %s", shortened(name), supportedCipher)
	}
	if keyBytes != minKeyBytes && keyBytes != maxKeyBytes {
		return unsupported("keys of %d bits are not supported here, only of %d and %d", keyBytes*8, minKeyBytes*8,
			maxKeyBytes*8)
	}
	return nil
}

// xtsCipher decrypts sectors with aes-xts-plain64: the tweak of a sector is its number in units of 512 bytes, whatever
// its length is.
type xtsCipher struct{ *xts.Cipher }

func newXTS(key []byte) (xtsCipher, error) {
	c, err := xts.NewCipher(aes.NewCipher, key)
	return xtsCipher{c}, err
}

// decrypt decrypts whole sectors in place.
func (x xtsCipher) decrypt(p []byte, sector int, iv uint64) {
	for ; len(p) > 0; p = p[sector:] {
		x.Decrypt(p[:sector], p[:sector], iv)
		iv += uint64(sector / sectorBytes)
	}
}

// Device has the decrypted data of a container. It is safe for concurrent reads.
type Device struct {
	r       io.ReaderAt
	segment segment
	cipher  xtsCipher
}

var _ io.ReaderAt = (*Device)(nil)

func (c *Container) newDevice(volumeKey []byte) (*Device, error) {
	x, err := newXTS(volumeKey)
	if err != nil {
		return nil, err
	}
	s := c.segment
	s.length -= s.length % int64(s.sectorBytes) // a part of a sector cannot be decrypted
	return &Device{r: c.r, segment: s, cipher: x}, nil
}

// Size returns the size in bytes.
func (d *Device) Size() int64 { return d.segment.length }

// ReadAt reads the decrypted data.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off >= d.segment.length {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var end error
	if rest := d.segment.length - off; int64(len(p)) > rest {
		p, end = p[:rest], io.EOF
	}
	sector := int64(d.segment.sectorBytes)
	for n := 0; n < len(p); {
		in := (off + int64(n)) % sector
		whole := int64(len(p)-n) / sector * sector
		if in == 0 && whole > 0 { // into p itself
			if err := d.readSectors(p[n:n+int(whole)], off+int64(n)); err != nil {
				return n, err
			}
			n += int(whole)
			continue
		}
		var buf [maxSectorBytes]byte
		if err := d.readSectors(buf[:sector], off+int64(n)-in); err != nil {
			return n, err
		}
		n += copy(p[n:], buf[in:sector])
	}
	return len(p), end
}

// readSectors reads and decrypts whole sectors.
func (d *Device) readSectors(p []byte, off int64) error {
	if err := readFullAt(d.r, p, d.segment.start+off); err != nil {
		return err
	}
	d.cipher.decrypt(p, d.segment.sectorBytes, d.segment.firstIV+uint64(off/sectorBytes))
	return nil
}
