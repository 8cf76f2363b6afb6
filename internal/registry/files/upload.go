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

// spaceCheckInterval is how much of an upload is written between two checks of the free space.
const spaceCheckInterval = 1 << 20

// StoreFile stores a file and replaces one of the same name: after a crash the old or the new one exists.
func (s *Store) StoreFile(u Upload) (receipt api.UploadResult, err error) {
	receipt.Name = u.Name
	if err := checkWritable(u.Name); err != nil {
		return receipt, err
	}
	if strings.Trim(u.Sum, "0123456789abcdefABCDEF") != "" || u.Sum != "" && len(u.Sum) != 2*sha256.Size {
		return receipt, farm.Invalid("sha256", "must be %d hex digits", 2*sha256.Size)
	}
	if u.Size > maxSizeOf(u.Name) {
		return receipt, tooLargeError(u.Name)
	}
	c, err := s.reserve(u, max(u.Size, 0))
	if err != nil {
		return receipt, err
	}
	temp := path.Join(path.Dir(u.Name), tempPrefix+rand.Text())
	defer func() {
		if err = diskFullError(err); !c.published {
			s.cancelUpload(c, temp)
		}
	}()
	f, err := s.createTemp(temp)
	if err != nil {
		return receipt, err
	}
	sum := sha256.New()
	if receipt.Size, err = c.writeBody(f, sum, u.Body); err != nil {
		return receipt, err
	}
	receipt.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if u.Sum != "" && !strings.EqualFold(u.Sum, receipt.SHA256) {
		return receipt, farm.Invalid("sha256", "checksum mismatch: the received bytes have the SHA-256 %s",
			receipt.SHA256)
	}
	return receipt, s.publishFile(c, temp, receipt.Size)
}

// maxSizeOf is the maximum size of a file with that name, in bytes.
func maxSizeOf(name string) int64 {
	if topDirOf(name) == FailureLogsDir {
		return MaxLogBytes
	}
	return MaxFileBytes
}

func tooLargeError(name string) error {
	return farm.Errorf(farm.CodeTooLarge, "A file in this directory must have at most %d bytes", maxSizeOf(name))
}

// diskFullError sets the code of a failure for lack of space.
func diskFullError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return farm.Unavailable(err, "The registry's disk is full")
	}
	return err
}

// checkFreeSpace refuses bytes that do not fit on the disk in addition to the templates.
func (s *Store) checkFreeSpace(more int64) error {
	full := s.opts.Full != nil && s.opts.Full()
	if s.opts.Free != nil && !full {
		free, total, err := s.opts.Free()
		full = err == nil && free-more < min(minFreeBytes, total/32)
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
	store     *Store
	name      string
	caller    string
	bytes     int64
	published bool // it has become a file
}

// reserve reserves capacity for the announced bytes.
func (s *Store) reserve(u Upload, bytes int64) (*reservation, error) {
	if err := s.checkFreeSpace(bytes); err != nil {
		return nil, err
	}
	c := &reservation{store: s, name: u.Name, caller: u.Caller}
	return c, c.acquire(1, bytes)
}

// retryUploadAfter is the retry delay sent to a caller at its upload limit.
const retryUploadAfter = 10 * time.Second

// acquire reserves capacity, or refuses an upload that exceeds the limit of its area. Logs of failed VMs replace
// old ones.
func (c *reservation) acquire(files int, bytes int64) error {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	h, most := s.usageOf(c.name), s.opts.MaxBytes
	if h == &s.failureLogs {
		most = s.opts.MaxLogsBytes
		mine, share := s.uploadingBytes[c.caller], max(farm.CallerShare(most), MaxLogBytes)
		if c.caller != "" && mine+bytes > share {
			return farm.Busy(retryUploadAfter,
				"You are uploading %d bytes of logs of failed VMs; one caller may upload %d at a time: "+
					"a quarter of the setting SVC_MAX_LOG_SIZE (%d)", mine, share, most)
		}
		if h.bytes+bytes > most || h.files+files > maxFiles {
			s.pruneLogsLocked(s.opts.Now())
		}
	}
	if h.bytes+bytes > most || h.files+files > maxFiles {
		what := "The file server"
		if h == &s.failureLogs {
			what = "The directory of the logs of failed VMs (setting SVC_MAX_LOG_SIZE)"
		}
		return farm.Errorf(farm.CodeUnavailable,
			"%s has %d bytes in %d files: the limit is %d bytes in %d files; remove some files",
			what, h.bytes, h.files, most, maxFiles)
	}
	s.addUsage(c.name, files, bytes)
	c.bytes += bytes
	c.countUploading(bytes)
	return nil
}

// countUploading counts bytes of a log that is being uploaded. The caller holds mu.
func (c *reservation) countUploading(bytes int64) {
	if c.caller == "" || topDirOf(c.name) != FailureLogsDir {
		return
	}
	if c.store.uploadingBytes[c.caller] += bytes; c.store.uploadingBytes[c.caller] == 0 {
		delete(c.store.uploadingBytes, c.caller)
	}
}

// growTo extends the reservation to what was written.
func (c *reservation) growTo(size int64) error {
	if err := c.store.checkFreeSpace(0); err != nil || size <= c.bytes {
		return err
	}
	return c.acquire(0, size-c.bytes)
}

// cancelUpload releases the reservation of a failed upload and removes its file.
func (s *Store) cancelUpload(c *reservation, temp string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUsage(c.name, -1, -c.bytes)
	c.countUploading(-c.bytes)
	if err := s.opts.Root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opts.Log.Warn("removing leftovers of an upload failed", "file", temp, "error", err)
	}
	s.removeEmptyDirs(path.Dir(temp))
}

// makeDir makes a directory, none of whose parents is a link.
func (s *Store) makeDir(dir string) (result error) {
	if dir == "." {
		return nil
	}
	if _, err := s.opts.Root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		defer func() { result = errors.Join(result, s.syncParents(dir)) }()
	}
	if err := s.opts.Root.MkdirAll(dir, 0o750); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return farm.Invalid("name", "a directory of the path is an existing file")
		}
		return fmt.Errorf("make a directory: %w", err)
	}
	if info, err := statNoFollow(s.opts.Root, dir); err != nil || !info.IsDir() {
		return farm.Invalid("name", "a directory of the path is not a directory")
	}
	return nil
}

// createTemp makes a new file and its directory, which cannot be pruned in between.
func (s *Store) createTemp(temp string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeDir(path.Dir(temp)); err != nil {
		return nil, err
	}
	f, err := s.opts.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, fmt.Errorf("make a file: %w", err)
	}
	return f, nil
}

// writeBody writes the upload to a new file and closes it.
func (c *reservation) writeBody(f *os.File, sum hash.Hash, from io.Reader) (size int64, err error) {
	body := io.LimitReader(from, maxSizeOf(c.name)+1)
	for err == nil {
		var n int64
		n, err = io.CopyN(io.MultiWriter(f, sum), body, spaceCheckInterval)
		size += n
		if grown := c.growTo(size); grown != nil {
			err = grown
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
	case size > maxSizeOf(c.name):
		err = tooLargeError(c.name)
	default:
		err = c.store.opts.Sync(f)
	}
	return size, errors.Join(err, f.Close())
}

// publishFile renames a written file to its final name.
func (s *Store) publishFile(c *reservation, temp string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.opts.Root.Lstat(c.name)
	if err == nil && !old.Mode().IsRegular() {
		return farm.Invalid("name", "a directory with this name exists")
	}
	if err := s.opts.Root.Rename(temp, c.name); err != nil {
		return fmt.Errorf("name a file: %w", err)
	}
	c.published = true
	s.addUsage(c.name, 0, size-c.bytes)
	c.countUploading(-c.bytes)
	if delete(s.uploaders, c.name); c.caller != "" && topDirOf(c.name) == FailureLogsDir {
		s.uploaders[c.name] = c.caller
	}
	if old != nil {
		s.addUsage(c.name, -1, -old.Size())
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
	dir, err := s.opts.Root.Open(name)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer dir.Close()
	if err := s.opts.Sync(dir); err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}
