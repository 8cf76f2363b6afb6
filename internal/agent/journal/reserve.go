package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Reserve is how many bytes a node's journal sets aside: room for the ends of many
// instances, whose removal then makes more.
const Reserve = 1 << 20

const reserveFile = ".reserve" // no id begins with a dot

// reserve is a file that takes up room until the disk is full, and is given up then,
// so that the end of what fills the disk can still be written. size 0 is none.
type reserve struct {
	root *os.Root
	size int64

	mu sync.Mutex // held while the file is made or removed
}

// fill makes the file when it is not there whole.
func (r *reserve) fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == 0 {
		return nil
	}
	if info, err := r.root.Lstat(reserveFile); err == nil && info.Size() == r.size {
		return nil
	}
	raw := make([]byte, r.size)
	_, _ = rand.Read(raw) // so that no file system squeezes it; it never fails
	err := r.root.WriteFile(reserveFile, raw, 0o600)
	if err == nil {
		return nil
	}
	_ = r.root.Remove(reserveFile)
	return fmt.Errorf("journal reserve: %w", err)
}

// give returns the room back; it says whether there was any.
func (r *reserve) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.root.Remove(reserveFile) == nil
}

// full reports whether an error means that the disk has no room.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// withRoom does one write, and once more with the reserve's room when it needs that.
func (d *Dir) withRoom(do func() error) error {
	err := do()
	if !full(err) || !d.reserve.give() {
		return err
	}
	d.log.Warn("the disk is full; the journal gives up its reserve")
	return do()
}

// refill makes the reserve again where there is room.
func (d *Dir) refill() {
	if err := d.reserve.fill(); err != nil && !full(err) && !errors.Is(err, fs.ErrClosed) {
		d.log.Warn("the journal has no reserve", "error", err)
	}
}
