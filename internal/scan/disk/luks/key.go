package luks

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"runtime/debug"

	"golang.org/x/crypto/argon2"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// Limits of key derivations. cryptsetup chooses at most 1 GiB and what its machine does in two seconds.
const (
	maxMemoryKiB     = 1 << 20
	maxLanes         = 64
	maxPasses        = 256 << 20 // Argon2: passes times memory in KiB, of all attempts of a scan
	maxIterations    = 256 << 20 // PBKDF2: of all attempts of a scan
	maxStripes       = 1 << 14
	minKeyBytes      = 32 // one AES-128 key for data, one for the tweak
	maxKeyBytes      = 64
	largeMemoryKiB   = 32 << 10
	kdfPBKDF2        = "pbkdf2"
	kdfArgon2i       = "argon2i"
	kdfArgon2id      = "argon2id"
	supportedCipher  = "aes-xts-plain64"
	minDigestBytes   = 16
	maxDigestBytes   = 64
	digestIterations = 16 << 20
)

// hashes are those of headers, key derivations and stripes.
var hashes = map[string]func() hash.Hash{
	"sha256": sha256.New, "sha224": sha256.New224, "sha384": sha512.New384, "sha512": sha512.New,
}

// derivation derives a key from a passphrase.
type derivation struct {
	kind, hash string
	salt       []byte
	iterations int64 // of Argon2: passes
	memoryKiB  int64 // of Argon2
	lanes      int64 // of Argon2
}

// check returns an error if the derivation is not supported, or takes too much.
func (d *derivation) check() error {
	if len(d.salt) == 0 || len(d.salt) > maxSaltBytes || d.iterations < 1 {
		return damaged("a key derivation has %d iterations and a salt of %d bytes", d.iterations, len(d.salt))
	}
	switch d.kind {
	case kdfPBKDF2:
		if hashes[d.hash] == nil {
			return unsupported("the hash %q is not supported here", shortened(d.hash))
		}
		if d.iterations > maxIterations {
			return fmt.Errorf("its key derivation takes %d iterations, more than the limit of %d", d.iterations,
				maxIterations)
		}
		return nil
	case kdfArgon2i, kdfArgon2id:
	default:
		return unsupported("the key derivation %q is not supported here", shortened(d.kind))
	}
	switch {
	case d.lanes < 1 || d.lanes > maxLanes || d.memoryKiB < 8*d.lanes: // Argon2 takes no less
		return damaged("a key derivation has %d KiB of memory and %d lanes", d.memoryKiB, d.lanes)
	case d.memoryKiB > maxMemoryKiB:
		return fmt.Errorf("its key derivation takes %d KiB of memory, more than the limit of %d KiB (1 GiB): "+
			"add a key that takes less with cryptsetup luksAddKey --pbkdf-memory", d.memoryKiB, maxMemoryKiB)
	case d.iterations > maxPasses/d.memoryKiB:
		return fmt.Errorf("its key derivation takes %d passes over %s of memory, more than the limit", d.iterations,
			bytesize.Format(d.memoryKiB<<10))
	}
	return nil
}

// Budget limits the work of all attempts that share it. It is not safe for concurrent use.
type Budget struct{ left work }

// NewBudget returns the budget of a scan: some minutes of one processor.
func NewBudget() *Budget { return &Budget{work{passes: maxPasses, iterations: maxIterations}} }

var errBudget = errors.New("not all of its key slots were tried: the key derivations of a scan would take too much " +
	"time")

// spend takes the work of an attempt, or nothing.
func (b *Budget) spend(w work) error {
	if w.passes > b.left.passes || w.iterations > b.left.iterations {
		return errBudget
	}
	b.left.passes -= w.passes
	b.left.iterations -= w.iterations
	return nil
}

// work is passes of Argon2 times KiB, and iterations of PBKDF2 or what takes as long.
type work struct{ passes, iterations int64 }

// work returns what trying one key takes.
func (s *keySlot) work() work {
	w := work{iterations: int64(s.stripes) * hashesOf(s.hash, s.keyBytes)}
	w.add(&s.kdf, s.areaKey)
	w.add(&s.digest.pbkdf2, len(s.digest.want))
	return w
}

// add adds the derivation of a key of some bytes.
func (w *work) add(d *derivation, length int) {
	if d.kind == kdfPBKDF2 {
		w.iterations += d.iterations * hashesOf(d.hash, length)
	} else {
		w.passes += d.iterations * d.memoryKiB
	}
}

// hashesOf returns how many hashes have some bytes.
func hashesOf(name string, length int) int64 {
	size := hashes[name]().Size()
	return int64((length + size - 1) / size)
}

// derive derives a key of some bytes.
func (d *derivation) derive(passphrase []byte, length int) ([]byte, error) {
	switch d.kind {
	case kdfPBKDF2:
		return pbkdf2.Key(hashes[d.hash], string(passphrase), d.salt, int(d.iterations), length)
	case kdfArgon2i, kdfArgon2id:
		if d.memoryKiB >= largeMemoryKiB {
			defer debug.FreeOSMemory() // before the next derivation takes as much
		}
		f := argon2.Key
		if d.kind == kdfArgon2id {
			f = argon2.IDKey
		}
		return f(passphrase, d.salt, uint32(d.iterations), uint32(d.memoryKiB), uint8(d.lanes), uint32(length)), nil
	}
	return nil, unsupported("the key derivation %q is not supported here", shortened(d.kind))
}

// addSlot adds a key slot if it can be used.
func (c *Container) addSlot(s keySlot) {
	err := s.kdf.check()
	if err == nil {
		err = s.digest.check()
	}
	need := (int64(s.keyBytes)*int64(s.stripes) + sectorBytes - 1) / sectorBytes * sectorBytes
	switch {
	case err != nil:
	case hashes[s.hash] == nil:
		err = unsupported("the hash %q is not supported here", shortened(s.hash))
	case s.keyBytes != minKeyBytes && s.keyBytes != maxKeyBytes || s.stripes < 1 || s.stripes > maxStripes:
		err = damaged("it has a key of %d bytes in %d stripes", s.keyBytes, s.stripes)
	case s.areaStart < sectorBytes || s.areaStart > c.segment.start || need > s.areaBytes ||
		need > c.segment.start-s.areaStart:
		err = damaged("its area of %d bytes at byte %d is not before the encrypted data", s.areaBytes, s.areaStart)
	}
	if err != nil {
		c.unread = append(c.unread, fmt.Errorf("key slot %s: %w", s.name, err))
		return
	}
	c.slots = append(c.slots, s)
}

// check returns an error if a digest is not supported.
func (d *digest) check() error {
	if len(d.want) < minDigestBytes || len(d.want) > maxDigestBytes || d.pbkdf2.iterations > digestIterations {
		return damaged("a digest has %d bytes after %d iterations", len(d.want), d.pbkdf2.iterations)
	}
	return d.pbkdf2.check()
}

// checkSlots returns an error if no key can open the container.
func (c *Container) checkSlots() error {
	switch {
	case len(c.slots) > 0:
		return nil
	case len(c.unread) > 0:
		return joinErrors(c.unread)
	}
	return errors.New("LUKS without key slots: no key can open it")
}

// Cost returns the work of trying one key with all key slots: iterations of PBKDF2, and passes of Argon2 times KiB.
func (c *Container) Cost() int64 {
	var sum int64
	for i := range c.slots {
		w := c.slots[i].work()
		sum += w.passes + w.iterations
	}
	return sum
}

// joinErrors returns some errors as one line.
func joinErrors(list []error) error {
	err := list[0]
	for _, other := range list[1:] {
		err = fmt.Errorf("%w; %w", err, other)
	}
	return err
}

// Unlock returns the decrypted data, with the first key that opens a key slot; ErrWrongKey when there is none. A key
// is a passphrase, or the content of a key file. All calls with one budget take at most some minutes, usually seconds,
// and 1 GiB of memory. Once ctx has ended, no other key slot is tried.
func (c *Container) Unlock(ctx context.Context, keys [][]byte, b *Budget) (*Device, error) {
	for _, key := range keys {
		for i := range c.slots {
			s := &c.slots[i]
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err := b.spend(s.work()); err != nil {
				return nil, err
			}
			volumeKey, err := c.openSlot(s, key)
			if err != nil {
				return nil, fmt.Errorf("key slot %s: %w", s.name, err)
			}
			if volumeKey != nil {
				return c.newDevice(volumeKey)
			}
		}
	}
	if len(c.unread) > 0 {
		return nil, fmt.Errorf("%w; not tried: %w", ErrWrongKey, joinErrors(c.unread))
	}
	return nil, ErrWrongKey
}

// openSlot returns the volume key of a slot; nil when the passphrase is not that of the slot.
func (c *Container) openSlot(s *keySlot, passphrase []byte) ([]byte, error) {
	areaKey, err := s.kdf.derive(passphrase, s.areaKey)
	if err != nil {
		return nil, err
	}
	material := make([]byte, (s.keyBytes*s.stripes+sectorBytes-1)/sectorBytes*sectorBytes)
	if err := readFullAt(c.r, material, s.areaStart); err != nil {
		return nil, err
	}
	x, err := newXTS(areaKey)
	if err != nil {
		return nil, err
	}
	x.decrypt(material, sectorBytes, 0)
	volumeKey := mergeStripes(material, s.keyBytes, s.stripes, hashes[s.hash])
	sum, err := s.digest.pbkdf2.derive(volumeKey, len(s.digest.want))
	if err != nil || subtle.ConstantTimeCompare(sum, s.digest.want) != 1 {
		return nil, err
	}
	return volumeKey, nil
}

// mergeStripes returns the key that is spread over stripes of its length, so that all of them are needed.
func mergeStripes(material []byte, keyBytes, stripes int, newHash func() hash.Hash) []byte {
	key := make([]byte, keyBytes)
	for k := range stripes {
		subtle.XORBytes(key, key, material[k*keyBytes:(k+1)*keyBytes])
		if k < stripes-1 {
			diffuse(key, newHash())
		}
	}
	return key
}

// diffuse replaces each part of a key, of the length of a hash, by the hash of its number and itself.
func diffuse(key []byte, h hash.Hash) {
	for k, rest := 0, key; len(rest) > 0; k++ {
		n := min(len(rest), h.Size())
		h.Reset()
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(k)))
		h.Write(rest[:n])
		copy(rest[:n], h.Sum(nil))
		rest = rest[n:]
	}
}

// KeysInFile returns the keys that the content of a file may mean: all of it, as cryptsetup --key-file reads it, and
// before that the content without the line feed at its end, as the passphrase that a user types.
func KeysInFile(content []byte) [][]byte {
	trimmed := bytes.TrimSuffix(content, []byte("\n"))
	if len(trimmed) == len(content) {
		return [][]byte{content}
	}
	return [][]byte{trimmed, content}
}
