package guesttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Turn waits until that many processors are free for the guests of a test, and reserves them until
// the test ends. One is enough for a busy guest with one virtual CPU; several guests of a test that
// are not busy simultaneously count as one. A test whose parent has its slots continues
// immediately, so a test reserves all it needs with its first call. Start measurements and time
// limits after it.
func Turn(t testing.TB, processors int) {
	t.Helper()
	if !queue.enter(t.Name()) {
		return
	}
	t.Cleanup(func() { queue.leave(t.Name()) })
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	held, err := testSlots{dir, runtime.NumCPU()}.take(processors)
	if err != nil {
		t.Fatalf("wait for a turn: %v", err)
	}
	t.Cleanup(func() {
		if err := release(held); err != nil {
			t.Error(err)
		}
	})
	if waited := time.Since(begun); waited > time.Second {
		t.Logf("waited %s for the guests of other tests", waited.Round(time.Second))
	}
}

// queue contains the tests of this process that have their slots or wait for them.
var queue = &names{in: map[string]bool{}}

type names struct {
	mu sync.Mutex
	in map[string]bool // guarded by mu: name of a test -> true
}

// enter adds a test. It returns false when the test or a parent of it is already in.
func (n *names) enter(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range len(name) + 1 {
		if (i == len(name) || name[i] == '/') && n.in[name[:i]] {
			return false
		}
	}
	n.in[strings.Clone(name)] = true
	return true
}

func (n *names) leave(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.in, name)
}

// testSlots are locked files: a process that ends in any way releases its slots.
type testSlots struct {
	dir string
	all int
}

// take locks n of the files, at most all of them, while it has the door file locked: two callers
// that each have a part of what they need would wait for each other, and one that needs many would
// never see as many free.
func (q testSlots) take(n int) (held []*os.File, err error) {
	door, err := q.open("door")
	if err != nil {
		return nil, err
	}
	defer door.Close()
	if err := lock(door, syscall.LOCK_EX); err != nil {
		return nil, err
	}
	for n = min(n, q.all); len(held) < n; {
		for i := 0; i < q.all && len(held) < n; i++ {
			f, err := q.try(fmt.Sprint("turn-", i))
			if err != nil {
				return nil, errors.Join(err, release(held))
			}
			if f != nil {
				held = append(held, f)
			}
		}
		if len(held) < n {
			time.Sleep(20 * time.Millisecond) // any of them may be released first
		}
	}
	return held, nil
}

// try locks a file, or returns nil when another process has it locked.
func (q testSlots) try(name string) (*os.File, error) {
	f, err := q.open(name)
	if err != nil {
		return nil, err
	}
	switch err := lock(f, syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (q testSlots) open(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(q.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
}

func lock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// release unlocks files by closing them.
func release(held []*os.File) error {
	var errs []error
	for _, f := range held {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
