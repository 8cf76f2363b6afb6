package files

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Upload is a file to be stored.
type Upload struct {
	Name   string
	Body   io.Reader
	Size   int64  // announced; -1 when unknown
	Sum    string // required sha256 in hex; "": any
	Caller string // under which logs of failed VMs are counted; "": by their directories
}

// lookBytes is how much of an upload is written between two checks of the free space.
const lookBytes = 1 << 20

// Put stores a file and replaces one of the same name: after a crash the old or the new one exists.
func (s *Store) Put(u Upload) (receipt api.UploadResult, err error) {
	receipt.Name = u.Name
	if err := writable(u.Name); err != nil {
		return receipt, err
	}
	if strings.Trim(u.Sum, "0123456789abcdefABCDEF") != "" || u.Sum != "" && len(u.Sum) != 2*sha256.Size {
		return receipt, farm.Invalid("sha256", "must be %d hex digits", 2*sha256.Size)
	}
	if u.Size > most(u.Name) {
		return receipt, tooLarge(u.Name)
	}
	c, err := s.claim(u, max(u.Size, 0))
	if err != nil {
		return receipt, err
	}
	temp := path.Join(path.Dir(u.Name), tempMark+rand.Text())
	defer func() {
		if err = full(err); !c.over {
			s.giveUp(c, temp)
		}
	}()
	f, err := s.create(temp)
	if err != nil {
		return receipt, err
	}
	sum := sha256.New()
	if receipt.Size, err = c.write(f, sum, u.Body); err != nil {
		return receipt, err
	}
	receipt.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if u.Sum != "" && !strings.EqualFold(u.Sum, receipt.SHA256) {
		return receipt, farm.Invalid("sha256", "checksum mismatch: the received bytes have the SHA-256 %s",
			receipt.SHA256)
	}
	return receipt, s.publish(c, temp, receipt.Size)
}

// most is the maximum size of a file with that name, in bytes.
func most(name string) int64 {
	if area(name) == Logs {
		return MaxLog
	}
	return MaxFile
}

func tooLarge(name string) error {
	return farm.Errorf(farm.CodeTooLarge, "A file in this directory must have at most %d bytes", most(name))
}

// full sets the code of a failure for lack of space.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return farm.Unavailable(err, "The registry's disk is full")
	}
	return err
}

// room refuses bytes that do not fit on the disk in addition to the templates.
func (s *Store) room(more int64) error {
	full := s.o.Full != nil && s.o.Full()
	if s.o.Free != nil && !full {
		free, total, err := s.o.Free()
		full = err == nil && free-more < min(floor, total/32)
	}
	if full {
		return farm.Errorf(farm.CodeUnavailable,
			"The registry's disk is full: the remaining space is reserved for templates")
	}
	return nil
}

// reservation reserves capacity for an upload until it becomes a file, so that concurrent uploads cannot use
// the same capacity.
type reservation struct {
	s      *Store
	name   string
	caller string
	bytes  int64
	over   bool // it has become a file
}

// claim reserves capacity for the announced bytes.
func (s *Store) claim(u Upload, bytes int64) (*reservation, error) {
	if err := s.room(bytes); err != nil {
		return nil, err
	}
	c := &reservation{s: s, name: u.Name, caller: u.Caller}
	return c, c.take(1, bytes)
}

// retryUpload is the retry delay sent to a caller at its upload limit.
const retryUpload = 10 * time.Second

// take reserves capacity, or refuses an upload that exceeds the limit of its area. Logs of failed VMs replace
// old ones.
func (c *reservation) take(files int, bytes int64) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h, most := s.areaOf(c.name), s.o.MaxBytes
	if h == &s.logs {
		most = s.o.MaxLogs
		mine, share := s.underway[c.caller], max(farm.CallerShare(most), MaxLog)
		if c.caller != "" && mine+bytes > share {
			return farm.Busy(retryUpload,
				"You are uploading %d bytes of logs of failed VMs; one caller may upload %d at a time: "+
					"a quarter of the setting SVC_MAX_LOG_SIZE (%d)", mine, share, most)
		}
		if h.bytes+bytes > most || h.files+files > maxFiles {
			s.sweep(s.o.Now())
		}
	}
	if h.bytes+bytes > most || h.files+files > maxFiles {
		what := "The file server"
		if h == &s.logs {
			what = "The directory of the logs of failed VMs (setting SVC_MAX_LOG_SIZE)"
		}
		return farm.Errorf(farm.CodeUnavailable,
			"%s has %d bytes in %d files: the limit is %d bytes in %d files; remove some files",
			what, h.bytes, h.files, most, maxFiles)
	}
	s.count(c.name, files, bytes)
	c.bytes += bytes
	c.upload(bytes)
	return nil
}

// upload counts bytes of a log that is being uploaded. The caller holds mu.
func (c *reservation) upload(bytes int64) {
	if c.caller == "" || area(c.name) != Logs {
		return
	}
	if c.s.underway[c.caller] += bytes; c.s.underway[c.caller] == 0 {
		delete(c.s.underway, c.caller)
	}
}

// grow extends the reservation to what was written.
func (c *reservation) grow(size int64) error {
	if err := c.s.room(0); err != nil || size <= c.bytes {
		return err
	}
	return c.take(0, size-c.bytes)
}

// giveUp releases the reservation of a failed upload and removes its file.
func (s *Store) giveUp(c *reservation, temp string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(c.name, -1, -c.bytes)
	c.upload(-c.bytes)
	if err := s.o.Root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Warn("removing leftovers of an upload failed", "file", temp, "error", err)
	}
	s.prune(path.Dir(temp))
}

// makeDir makes a directory, none of whose parents is a link.
func (s *Store) makeDir(dir string) (result error) {
	if dir == "." {
		return nil
	}
	if _, err := s.o.Root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		defer func() { result = errors.Join(result, s.syncParents(dir)) }()
	}
	if err := s.o.Root.MkdirAll(dir, 0o750); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return farm.Invalid("name", "a directory of the path is an existing file")
		}
		return fmt.Errorf("make a directory: %w", err)
	}
	if info, err := isPlain(s.o.Root, dir); err != nil || !info.IsDir() {
		return farm.Invalid("name", "a directory of the path is not a directory")
	}
	return nil
}

// create makes a new file and its directory, which cannot be pruned in between.
func (s *Store) create(temp string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeDir(path.Dir(temp)); err != nil {
		return nil, err
	}
	f, err := s.o.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, fmt.Errorf("make a file: %w", err)
	}
	return f, nil
}

// write writes the upload to a new file and closes it.
func (c *reservation) write(f *os.File, sum hash.Hash, from io.Reader) (size int64, err error) {
	body := io.LimitReader(from, most(c.name)+1)
	for err == nil {
		var n int64
		n, err = io.CopyN(io.MultiWriter(f, sum), body, lookBytes)
		size += n
		if grown := c.grow(size); grown != nil {
			err = grown
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
	case size > most(c.name):
		err = tooLarge(c.name)
	default:
		err = c.s.o.Sync(f)
	}
	return size, errors.Join(err, f.Close())
}

// publish renames a written file to its final name.
func (s *Store) publish(c *reservation, temp string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.o.Root.Lstat(c.name)
	if err == nil && !old.Mode().IsRegular() {
		return farm.Invalid("name", "a directory with this name exists")
	}
	if err := s.o.Root.Rename(temp, c.name); err != nil {
		return fmt.Errorf("name a file: %w", err)
	}
	c.over = true
	s.count(c.name, 0, size-c.bytes)
	c.upload(-c.bytes)
	if delete(s.uploaders, c.name); c.caller != "" && area(c.name) == Logs {
		s.uploaders[c.name] = c.caller
	}
	if old != nil {
		s.count(c.name, -1, -old.Size())
	}
	return s.syncDir(path.Dir(c.name))
}

// syncParents makes the names of a directory and of those above it durable.
func (s *Store) syncParents(dir string) error {
	for dir != "." {
		dir = path.Dir(dir)
		if err := s.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) syncDir(name string) error {
	dir, err := s.o.Root.Open(name)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer dir.Close()
	if err := s.o.Sync(dir); err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}
