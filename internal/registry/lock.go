package registry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/blob"
)

// lockStorage makes this process the owner of a storage until the file is closed.
func lockStorage(base string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(base, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock storage: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, _ := io.ReadAll(io.LimitReader(f, 32)) // only for the message
		return nil, errors.Join(fmt.Errorf("the storage %s is in use by process %s: %w", base, strings.TrimSpace(string(owner)), err), f.Close())
	}
	text := fmt.Sprintf("%d\n", os.Getpid())
	_, err = f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Truncate(int64(len(text)))); err != nil {
		return nil, errors.Join(fmt.Errorf("lock storage: %w", err), f.Close())
	}
	return f, nil
}

// keyedMutex is one mutex for each layer. The zero value is ready.
type keyedMutex struct {
	mu   sync.Mutex // guards the map and the counts in it
	keys map[blob.Root]*keyLock
}

type keyLock struct {
	sync.Mutex
	users int
}

// lock takes a layer's mutex and gives the function that releases it.
func (k *keyedMutex) lock(root blob.Root) (unlock func()) {
	k.mu.Lock()
	if k.keys == nil {
		k.keys = map[blob.Root]*keyLock{}
	}
	l := k.keys[root]
	if l == nil {
		l = &keyLock{}
		k.keys[root] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.keys, root)
		}
	}
}
