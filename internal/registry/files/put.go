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

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Upload is a file that is to be stored.
type Upload struct {
	Name string
	Body io.Reader
	Size int64  // announced; -1 when it is not known
	Sum  string // sha256 in hex that it must have; "": any
}

// lookBytes is how much of an upload is written between two looks at the room of the disk.
const lookBytes = 64 << 20

// Put stores a file, in the place of one of that name: after a crash there is the old or the new one.
func (s *Store) Put(u Upload) (api.FileReceipt, error) {
	receipt := api.FileReceipt{Name: u.Name}
	if err := writable(u.Name); err != nil {
		return receipt, err
	}
	if strings.Trim(u.Sum, "0123456789abcdefABCDEF") != "" || u.Sum != "" && len(u.Sum) != 2*sha256.Size {
		return receipt, farm.Invalid("sha256", "must be %d hex digits", 2*sha256.Size)
	}
	if u.Size > MaxFile {
		return receipt, tooLarge()
	}
	if err := errors.Join(s.room(max(u.Size, 0)), s.share(u.Name, max(u.Size, 0))); err != nil {
		return receipt, err
	}
	temp := path.Join(path.Dir(u.Name), tempMark+rand.Text())
	f, err := s.create(temp)
	if err != nil {
		return receipt, err
	}
	sum := sha256.New()
	receipt.Size, err = s.write(f, sum, u)
	receipt.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err == nil && u.Sum != "" && !strings.EqualFold(u.Sum, receipt.SHA256) {
		err = farm.Invalid("sha256", "the bytes that came have the sum %s", receipt.SHA256)
	}
	if err == nil {
		err = s.publish(temp, u.Name, receipt.Size)
	}
	if err != nil {
		return receipt, errors.Join(full(err), s.o.Root.Remove(temp))
	}
	return receipt, nil
}

func tooLarge() error {
	return farm.Errorf(farm.CodeTooLarge, "A file must have at most %d bytes", MaxFile)
}

// full gives a failure for want of space its code.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return farm.Unavailable(err, "The registry's disk is full")
	}
	return err
}

// room refuses bytes that the disk has no room for beside the templates.
func (s *Store) room(more int64) error {
	full := s.o.Full != nil && s.o.Full()
	if s.o.Free != nil && !full {
		free, total, err := s.o.Free()
		full = err == nil && free-more < min(floor, total/32)
	}
	if full {
		return farm.Errorf(farm.CodeUnavailable, "The registry's disk is full: what is left is for templates")
	}
	return nil
}

// share refuses a file that is too much beside the others of its area. Logs of failed VMs make the oldest of
// them go.
func (s *Store) share(name string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, most := s.areaOf(name), s.o.MaxBytes
	if h == &s.logs {
		most = s.o.MaxLogs
		if h.bytes+size > most || h.files >= maxFiles {
			s.sweep(s.o.Now())
		}
	}
	if h.bytes+size > most || h.files >= maxFiles {
		return farm.Errorf(farm.CodeUnavailable, "The file server holds %d bytes in %d files and takes at most %d in %d; remove some", h.bytes, h.files, most, maxFiles)
	}
	return nil
}

// makeDir makes a directory, none of whose parents is a link.
func (s *Store) makeDir(dir string) error {
	if dir == "." {
		return nil
	}
	if err := s.o.Root.MkdirAll(dir, 0o755); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return farm.Invalid("name", "a part of it is a file that is there already")
		}
		return full(fmt.Errorf("make a directory: %w", err))
	}
	if info, err := plain(s.o.Root, dir); err != nil || !info.IsDir() {
		return farm.Invalid("name", "a part of it is no directory")
	}
	return nil
}

// create makes a new file and its directory, also one that was removed with its last file meanwhile.
func (s *Store) create(temp string) (*os.File, error) {
	for again := false; ; again = true {
		if err := s.makeDir(path.Dir(temp)); err != nil {
			return nil, err
		}
		f, err := s.o.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			return f, nil
		}
		if again || !errors.Is(err, fs.ErrNotExist) {
			return nil, full(fmt.Errorf("make a file: %w", err))
		}
	}
}

// write writes what comes to a new file and closes it.
func (s *Store) write(f *os.File, sum hash.Hash, u Upload) (size int64, err error) {
	body := io.LimitReader(u.Body, MaxFile+1)
	for err == nil {
		var n int64
		n, err = io.CopyN(io.MultiWriter(f, sum), body, lookBytes)
		if size += n; err == nil {
			err = errors.Join(s.room(0), s.share(u.Name, size))
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
	case size > MaxFile:
		err = tooLarge()
	default:
		err = f.Sync()
	}
	return size, errors.Join(err, f.Close())
}

// publish gives a written file its name.
func (s *Store) publish(temp, name string, size int64) error {
	if err := s.share(name, size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.o.Root.Lstat(name)
	if err == nil && !old.Mode().IsRegular() {
		return farm.Invalid("name", "there is a directory of that name")
	}
	if err := s.o.Root.Rename(temp, name); err != nil {
		return fmt.Errorf("name a file: %w", err)
	}
	s.count(name, 1, size)
	if old != nil {
		s.count(name, -1, -old.Size())
	}
	dir, err := s.o.Root.Open(path.Dir(name))
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}
