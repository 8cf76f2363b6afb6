package inventorydb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// ErrInUse reports that another process has locked the inventory.
var ErrInUse = errors.New("another host scanner uses the inventory")

// dbFile is the key-value file. It is open while a transaction uses it and for a short time after, so
// that an idle process has neither its pages nor the library's buffers in memory.
type dbFile struct {
	path        string
	idleTimeout time.Duration // after the last use until it is closed
	onOpen      func()        // called when it was opened; may be nil
	onClose     func()        // called when it was closed; may be nil

	mu        sync.Mutex // guards the fields below
	db        *bbolt.DB
	users     int
	idleTimer *time.Timer
	closed    bool
}

// acquire opens the file unless it is open.
func (f *dbFile) acquire() (*bbolt.DB, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	if f.db == nil {
		db, err := openFile(f.path)
		if err != nil {
			return nil, err
		}
		f.db = db
		if f.onOpen != nil {
			f.onOpen()
		}
	}
	f.users++
	f.idleTimer.Stop()
	return f.db, nil
}

func (f *dbFile) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users == 0 && !f.closed {
		f.idleTimer.Reset(f.idleTimeout)
	}
}

// close closes the file permanently.
func (f *dbFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.idleTimer.Stop()
	return f.closeLocked()
}

// replace closes the file, ignores the error, and calls by to put another one in its place.
func (f *dbFile) replace(by func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.closeLocked() // it is damaged
	return by()
}

// closeIdle closes the file until it is used again.
func (f *dbFile) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		_ = f.closeLocked() // all transactions are on disk
	}
}

func (f *dbFile) closeLocked() (err error) {
	if f.db == nil {
		return nil
	}
	defer recoverDamage(&err)
	db := f.db
	f.db = nil
	if f.onClose != nil {
		defer f.onClose()
	}
	return db.Close() // waits for read transactions
}

// openFile opens the file with the library, which panics on some damaged files, and reads past the
// end of a truncated one.
func openFile(path string) (db *bbolt.DB, err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err = bbolt.Open(path, 0o600,
		&bbolt.Options{Timeout: 5 * time.Second, FreelistType: bbolt.FreelistMapType, NoStatistics: true})
	if err != nil {
		if isSystemError(err) {
			return nil, fmt.Errorf("open package inventory: %w", err)
		}
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	db.AllocSize = 1 << 20
	return db, nil
}

// isSystemError reports whether an error comes from the system, not from the content of the file.
func isSystemError(err error) bool {
	var at *os.PathError
	var no unix.Errno
	return errors.As(err, &at) || errors.As(err, &no) || errors.Is(err, os.ErrPermission)
}

// recoverDamage converts to an error what the library does on a damaged page: it panics, or reads past
// the end of the file.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %.200s", ErrDamaged, fmt.Sprint(p))
	}
}

// view runs a read transaction. It is short: results are copied.
func (f *dbFile) view(do func(*bbolt.Tx) error) (err error) {
	db, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return db.View(do)
}

// update runs a write transaction.
func (f *dbFile) update(do func(*bbolt.Tx) error) (err error) {
	db, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return db.Update(do)
}

// lockTimeout limits the wait for the exit of a killed process that has the lock.
const lockTimeout = time.Second

// acquireLock locks the path for this process until it ends.
func acquireLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(lockTimeout); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, path)
		}
		return nil, err
	}
	return f, nil
}
