package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/scan/vulndb/beside"
)

// place is where a database lies, with what is kept beside it: the lock, what the last
// check found, and a file that is being fetched. All lie in one folder, so that a rename
// never leaves its file system.
type place string

func (p place) lock() string  { return string(p) + ".lock" }
func (p place) state() string { return string(p) + ".state" }
func (p place) part() string  { return string(p) + ".part" }

// state is what is remembered of the last check.
type state struct {
	URL      string    `json:"url"`
	Checked  time.Time `json:"checked"`
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"`
	// Listing is that of the database in use, as it was offered.
	Listing Listing `json:"listing"`
	// Part is the listing that the file being fetched belongs to.
	Part Listing `json:"part,omitzero"`
}

// load gives the zero state when there is none or it is damaged: then everything is
// asked for anew.
func (p place) load() state {
	s, err := p.read()
	if err != nil {
		return state{}
	}
	return s
}

func (p place) read() (s state, err error) {
	b, err := os.ReadFile(p.state())
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

const lockPoll = 100 * time.Millisecond

// hold waits until no other update of the place runs, or for a time. The lock ends with its
// process.
func (p place) hold(ctx context.Context, wait time.Duration) (release func(), err error) {
	if wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("it was waited for %s", wait))
		defer cancel()
	}
	if err := os.MkdirAll(filepath.Dir(string(p)), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p.lock(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", p.lock(), err)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another update runs: %w", context.Cause(ctx))
		}
	}
}

// settle makes a file that lies in the folder the database.
func (p place) settle(from string) error {
	if err := os.Chmod(from, 0o644); err != nil {
		return err
	}
	if err := syncPath(from); err != nil {
		return err
	}
	if err := os.Rename(from, string(p)); err != nil {
		return err
	}
	return syncPath(filepath.Dir(string(p)))
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := beside.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.Commit()
}
