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

// DefaultReserveBytes is the number of bytes that a node's journal sets aside: enough for the ends of many
// instances, whose removal then frees more.
const DefaultReserveBytes = 1 << 20

const reserveFile = ".reserve" // no ID begins with a dot

// diskReserve is a file that occupies space until the disk is full, and is removed then, so that the
// end of a VM that fills the disk can still be written. size 0 disables it.
type diskReserve struct {
	root      *os.Root
	sizeBytes int64

	mu sync.Mutex // held while the file is made or removed
}

// fill creates the file unless it is complete.
func (r *diskReserve) fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sizeBytes == 0 {
		return nil
	}
	if info, err := r.root.Lstat(reserveFile); err == nil && info.Size() == r.sizeBytes {
		return nil
	}
	raw := make([]byte, r.sizeBytes)
	_, _ = rand.Read(raw) // so that no file system compresses it; it never fails
	err := r.root.WriteFile(reserveFile, raw, 0o600)
	if err == nil {
		return nil
	}
	_ = r.root.Remove(reserveFile)
	return fmt.Errorf("create journal reserve file: %w", err)
}

// release frees the reserved space; it reports whether there was any.
func (r *diskReserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.root.Remove(reserveFile) == nil
}

// isDiskFull reports whether an error means that the disk is full.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// withReserve calls do, and once more with the reserve freed when the disk is full.
func (d *Dir) withReserve(do func() error) error {
	err := do()
	if !isDiskFull(err) || !d.reserve.release() {
		return err
	}
	d.log.Warn("disk full; journal reserve file removed to free space")
	return do()
}

// refillReserve creates the reserve again when the disk has free space.
func (d *Dir) refillReserve() {
	if err := d.reserve.fill(); err != nil && !isDiskFull(err) && !errors.Is(err, fs.ErrClosed) {
		d.log.Warn("creating the journal reserve file failed", "error", err)
	}
}
