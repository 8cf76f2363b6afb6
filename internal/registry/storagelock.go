package registry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/blob"
)

// StorageInUseError is the failure to open a storage that another process has open.
type StorageInUseError struct {
	Base    string
	PID     string // process ID, when known
	Address string // of its API, when it has one
}

func (e *StorageInUseError) Error() string {
	return fmt.Sprintf("the storage %s is in use by process %s", e.Base, e.PID)
}

// lockStorage makes this process the owner of a storage until the file is closed. address is that of its API,
// for processes that find the storage in use.
func lockStorage(base, address string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(base, ".lock"), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("lock storage: %w", err)
	}
	if err := flock(f); err != nil {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock storage: %w", err), f.Close())
		}
		owner, _ := io.ReadAll(io.LimitReader(f, 512)) // for the message, and for tools
		process, rest, _ := strings.Cut(string(owner), "\n")
		return nil, errors.Join(&StorageInUseError{Base: base, PID: process, Address: strings.TrimSpace(rest)},
			f.Close())
	}
	text := fmt.Sprintf("%d\n%s\n", os.Getpid(), address)
	_, err = f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Truncate(int64(len(text)))); err != nil {
		return nil, errors.Join(fmt.Errorf("lock storage: %w", err), f.Close())
	}
	return f, nil
}

// lockRetryTimeout is how long the lock is retried. A program that is being started briefly holds files that this
// process has just closed: its copies are closed when it is executed.
const lockRetryTimeout = 500 * time.Millisecond

func flock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(lockRetryTimeout / 50) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > lockRetryTimeout {
			return err
		}
	}
}

// layerMutexes is one mutex for each layer. The zero value is ready.
type layerMutexes struct {
	mu   sync.Mutex // guards the map and the counts in it
	keys map[blob.Digest]*layerMutex
}

type layerMutex struct {
	sync.Mutex
	refs int
}

// lock locks a layer's mutex and returns the function that releases it.
func (k *layerMutexes) lock(root blob.Digest) (unlock func()) {
	k.mu.Lock()
	if k.keys == nil {
		k.keys = map[blob.Digest]*layerMutex{}
	}
	l := k.keys[root]
	if l == nil {
		l = &layerMutex{}
		k.keys[root] = l
	}
	l.refs++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.keys, root)
		}
	}
}
