package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// lockTimeout is how long a new forwarder waits for one that was just killed to end.
const lockTimeout = 5 * time.Second

var errLocked = errors.New("another port forwarder of this VM runs")

// tryLock locks the lock file. The lock belongs to the open file, so that it ends with its process.
func tryLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", lockFile, err)
}

// takeLock locks the lock file for this process, which becomes its content.
func takeLock(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		f, err := tryLock(dir)
		if err == nil {
			if err := writeIdentity(f); err != nil {
				_ = f.Close()
				return nil, err
			}
			return f, nil
		}
		if !errors.Is(err, errLocked) || wait(ctx, askInterval) != nil {
			return nil, err
		}
	}
}

func writeIdentity(f *os.File) error {
	self, err := cliproc.Find(os.Getpid())
	if err != nil {
		return err
	}
	b, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return err
}

// lockHolder returns the process that has locked the lock file, or the last one that had.
func lockHolder(dir string) (holder cliproc.Process, err error) {
	return holder, readJSON(dir, lockFile, &holder)
}
