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

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

// dbLocation is the path of a database. Next to it are the lock, the result of the last check, and
// a partial download. All are in one directory, so that a rename never leaves its file system.
type dbLocation string

func (p dbLocation) lockPath() string  { return string(p) + ".lock" }
func (p dbLocation) statePath() string { return string(p) + ".state" }
func (p dbLocation) partPath() string  { return string(p) + ".part" }

// checkState is the stored result of the last check.
type checkState struct {
	URL       string    `json:"url"`
	CheckedAt time.Time `json:"checked"`
	ETag      string    `json:"etag,omitempty"`
	Modified  string    `json:"modified,omitempty"`
	// Listing is that of the database in use, as the server offered it.
	Listing Listing `json:"listing"`
	// PartListing is the listing of the file that is being fetched or imported. It is that of the database
	// in use when the process was killed after it had put the file there.
	PartListing Listing `json:"part,omitzero"`
}

// possibleListings returns the possible listings of the database in use.
func (s checkState) possibleListings() []Listing { return []Listing{s.PartListing, s.Listing} }

// currentListing returns the listing of the database in use; the zero one when it was built here. When two
// match, its checksum decides.
func (p dbLocation) currentListing(info vulndb.Info, st checkState) Listing {
	var fit []Listing
	for _, l := range st.possibleListings() {
		if l.Checksum != "" && l.Built.Equal(info.Built) && l.Size == info.Size {
			fit = append(fit, l)
		}
	}
	switch {
	case len(fit) == 0:
		return Listing{}
	case len(fit) == 2 && fit[0].Checksum != fit[1].Checksum:
		if sum, _, err := fileChecksum(string(p)); err != nil || sum != fit[0].Checksum {
			return fit[1]
		}
	}
	return fit[0]
}

// loadStatus returns the status of the database, and the state with its listing.
func (p dbLocation) loadStatus() (Status, checkState) {
	here, _ := CurrentStatus(string(p)) // a database that cannot be read is replaced
	st := p.loadState()
	if here.Listing.Checksum != "" {
		st.Listing = here.Listing
	}
	return here, st
}

// loadState returns the zero state when there is none or it is damaged: then everything is fetched
// again.
func (p dbLocation) loadState() checkState {
	s, err := p.readState()
	if err != nil {
		return checkState{}
	}
	return s
}

func (p dbLocation) readState() (s checkState, err error) {
	b, err := os.ReadFile(p.statePath())
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

const lockPollInterval = 100 * time.Millisecond

// acquireLock waits until no other update of the database runs, or until the timeout. The lock ends with
// its process.
func (p dbLocation) acquireLock(ctx context.Context, wait time.Duration) (release func(), err error) {
	if wait > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("waited for %s", wait))
		defer cancel()
	}
	if err := os.MkdirAll(filepath.Dir(string(p)), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p.lockPath(), os.O_CREATE|os.O_RDWR, 0o644)
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
			return nil, fmt.Errorf("lock %s: %w", p.lockPath(), err)
		}
		select {
		case <-time.After(lockPollInterval):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another database update is running: %w", context.Cause(ctx))
		}
	}
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.Commit()
}
