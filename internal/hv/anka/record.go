package anka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	recordSuffix   = ".json"
	lockSuffix     = ".lock"
	maxRecordBytes = 4 << 20
	pollInterval   = 50 * time.Millisecond
)

// record is what the driver remembers of a VM. It is written before anything that it describes is done.
type record struct {
	Spec      hv.Spec // with defaults
	CreatedAt time.Time
	StartedAt time.Time // of the last start; zero before the first
	StoppedAt time.Time // zero until the end of the last run was seen
	Version   string    // of anka at the last start

	// IsMade is set once the VM is a complete clone with its settings. Otherwise what anka has under
	// its name is half made.
	IsMade  bool
	IsReady bool          // the last start is complete
	Ports   []hv.PortRule // in effect since the last start

	// StopRequested is set before a stop begins, so that an agent that was killed in between does not
	// take it for a failure.
	StopRequested bool
	Failure       string // why the last run ended without a request
}

// readJSON reads a file of this driver; fs.ErrNotExist if there is none.
func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxRecordBytes {
		return fmt.Errorf("read %s: the file has more than %d bytes", path, maxRecordBytes)
	}
	if err := json.NewDecoder(f).Decode(into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// removeFile removes a file that may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockFile takes an exclusive lock on a file, which programs that inherit the file keep. So it is free
// only when no command of an agent that was killed continues. Closing the file releases the lock.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return nil, errors.Join(fmt.Errorf("a command of an earlier agent holds %s: %w", path, err), f.Close())
		}
	}
}

// sleep waits; it returns why ctx has ended if it has.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
