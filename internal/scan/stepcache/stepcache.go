package stepcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxBytes is the size of all entries on the disk, above which the least recently used ones are removed.
	MaxBytes = 1 << 30
	// maxEntryBytes limits an entry on the disk, maxDataBytes what it decompresses to.
	maxEntryBytes = 128 << 20
	maxDataBytes  = 256 << 20

	suffix     = ".steps"
	tempPrefix = ".steps-"
	// maxWriteTime is how long an entry may be in writing.
	maxWriteTime = time.Hour
)

// magic is the beginning of an entry. The SHA-256 of the compressed rest follows.
var magic = []byte("BYSTEPS1")

const headerBytes = 8 + sha256.Size

// Cache is a directory of entries. It is safe for concurrent use, also by several processes.
type Cache struct {
	dir      string
	maxBytes int64
}

// Open returns the cache in a directory, which is created when the first entry is saved. maxBytes limits the
// size of its entries.
func Open(dir string, maxBytes int64) *Cache { return &Cache{dir, maxBytes} }

// path returns the file of a key.
func (c *Cache) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:])+suffix)
}

// Load returns the data of a key, and notes its use. It is false when there are none, or the entry is damaged.
func (c *Cache) Load(key string) ([]byte, bool) {
	f, err := os.Open(c.path(key))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() < headerBytes || st.Size() > maxEntryBytes {
		return nil, false
	}
	raw := make([]byte, st.Size())
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, false
	}
	data, ok := decode(raw, key)
	if ok {
		now := time.Now()
		_ = os.Chtimes(f.Name(), now, now) // of a directory that is read only: it is removed earlier
	}
	return data, ok
}

// decode returns the data of an entry, if it is whole and that of a key.
func decode(raw []byte, key string) ([]byte, bool) {
	if len(raw) < headerBytes || !bytes.HasPrefix(raw, magic) {
		return nil, false
	}
	sum := sha256.Sum256(raw[headerBytes:])
	if !bytes.Equal(sum[:], raw[len(magic):headerBytes]) {
		return nil, false
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDataBytes))
	if err != nil {
		return nil, false
	}
	defer z.Close()
	data, err := z.DecodeAll(raw[headerBytes:], nil)
	if err != nil {
		return nil, false
	}
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) || string(data[size:size+int(n)]) != key {
		return nil, false
	}
	return data[size+int(n):], true
}

// Save keeps data under a key, and removes the least recently used entries above the limit. Data that are too
// large are not kept.
func (c *Cache) Save(key string, data []byte) error {
	if len(data)+len(key) > maxDataBytes-16 {
		return nil
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	plain := append(binary.AppendUvarint(make([]byte, 0, len(data)+len(key)+16), uint64(len(key))), key...)
	raw := z.EncodeAll(append(plain, data...), make([]byte, headerBytes, headerBytes+len(data)/2))
	if int64(len(raw)) > min(maxEntryBytes, c.maxBytes) {
		return nil
	}
	sum := sha256.Sum256(raw[headerBytes:])
	copy(raw[copy(raw, magic):], sum[:])
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of scan results: %w", err)
	}
	f, err := os.CreateTemp(c.dir, tempPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.path(key)) // not synced: the digest detects what a crash of the machine leaves
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return c.prune()
}

// prune removes the least recently used entries until the rest fits.
func (c *Cache) prune() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), suffix):
			infos = append(infos, info)
			total += info.Size()
		case strings.HasPrefix(e.Name(), tempPrefix) && time.Since(info.ModTime()) > maxWriteTime:
			_ = os.Remove(filepath.Join(c.dir, e.Name())) // of a process that was killed
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range infos {
		if total <= c.maxBytes {
			break
		}
		total -= info.Size()
		if err := os.Remove(filepath.Join(c.dir, info.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
