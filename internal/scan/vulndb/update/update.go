package update

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Options configure the location of a database and the source of newer ones.
type Options struct {
	Target  string            // file of the database
	Listing string            // http(s) or file URL, or path, of the listing
	Key     ed25519.PublicKey // must have signed listings; nil: signatures are not checked

	// CheckInterval is how long the last check is valid; until then no request is sent. 0 always checks.
	CheckInterval time.Duration
	// StallTimeout is the timeout for a server that sends nothing; 0 is 30 s.
	StallTimeout time.Duration
	// Timeout limits an update's duration once no other one runs, even while data arrives; 0 is
	// unlimited. Received data is kept, and the next update resumes there.
	Timeout time.Duration
	// LockTimeout limits the wait for another update of the same database; 0 is unlimited.
	LockTimeout time.Duration
	// MaxSize is the maximum size of a database in bytes; 0 is 400 MiB.
	MaxSize int64

	Client   *http.Client     // nil is one that follows no redirect from https to http
	Now      func() time.Time // nil is time.Now
	Progress func(done, total int64)
}

// Outcome is the result of an update.
type Outcome string

// The outcomes.
const (
	Updated    Outcome = "updated"     // a newer database is in place
	Current    Outcome = "current"     // the existing one is the newest
	NotChecked Outcome = "not checked" // the last check was a short time ago
	Failed     Outcome = "failed"      // the database is unchanged
)

// Status describes the existing database, and the result of an update.
type Status struct {
	Outcome   Outcome
	Present   bool        // a database exists and can be read
	Info      vulndb.Info // of it
	CheckedAt time.Time   // last successful request of the listing; zero is never
	// that the database came with; of a bare file that was imported, what it would be; zero when it was built here
	Listing Listing
}

const defaultStallTimeout = 30 * time.Second

// maxClockSkew is how far in the future the date of a database may be. A later one would keep newer databases away
// until that time.
const maxClockSkew = 24 * time.Hour

func (o Options) withDefaults() Options {
	if o.StallTimeout == 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.MaxSize == 0 {
		o.MaxSize = defaultMaxSize
	}
	if o.Client == nil {
		o.Client = &http.Client{CheckRedirect: refuseDowngrade}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// CurrentStatus returns the status of the existing database, without network access. An unreadable one is
// not present, and the error is returned; a missing one is not an error.
func CurrentStatus(target string) (Status, error) {
	p := dbLocation(target)
	st := p.loadState()
	s := Status{CheckedAt: st.CheckedAt}
	db, err := vulndb.Open(target)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Present, s.Info = true, db.Info()
	s.Listing = p.currentListing(s.Info, st)
	return s, db.Close()
}

// Verify returns an error unless the database at a path may be used with a key: one that was
// fetched or imported must be signed, also when that happened before the key was set. One that was
// built here needs no signature. A missing or unreadable one is not an error here.
func Verify(target string, key ed25519.PublicKey) error {
	if _, err := dbLocation(target).readState(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: reading the signature of the vulnerability database at %s failed: %w",
			ErrInvalidSignature,
			target, err)
	}
	s, _ := CurrentStatus(target) // opening it returns the error
	if s.Listing.Checksum == "" {
		return nil
	}
	if err := s.Listing.verify(key); err != nil {
		return fmt.Errorf("refuse the vulnerability database of %s at %s: %w", s.Info.Built.Format(time.DateOnly),
			target, err)
	}
	return nil
}

// Update brings the database up to date. On failure it returns the error, and the status of the
// existing database.
func Update(ctx context.Context, o Options) (Status, error) {
	o = o.withDefaults()
	p := dbLocation(o.Target)
	release, err := p.acquireLock(ctx, o.LockTimeout)
	if err == nil {
		defer release()
		if o.Timeout > 0 {
			var cancel func()
			ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout,
				fmt.Errorf("the update took longer than %s", o.Timeout))
			defer cancel()
		}
		var outcome Outcome
		outcome, err = p.update(ctx, o)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the cause, not the resulting error
		}
		if err == nil {
			s, err := CurrentStatus(o.Target)
			s.Outcome = outcome
			return s, err
		}
	}
	s, lookErr := CurrentStatus(o.Target)
	s.Outcome = Failed
	switch {
	case s.Present:
		err = fmt.Errorf("update the vulnerability database: %w; the database of %s stays in use", err,
			s.Info.Built.Format(time.DateOnly))
	case lookErr != nil:
		err = fmt.Errorf("update the vulnerability database: %w; no usable database exists: %w", err, lookErr)
	default:
		err = fmt.Errorf("update the vulnerability database: %w; no database exists yet", err)
	}
	return s, err
}

// update does the work; the caller holds the lock.
func (p dbLocation) update(ctx context.Context, o Options) (Outcome, error) {
	here, st := p.loadStatus()
	if st.URL != o.Listing {
		st = checkState{URL: o.Listing, Listing: st.Listing, PartListing: st.PartListing}
	}
	// The last check does not apply to a database that was built or restored here since.
	trusted := here.Listing.verify(o.Key) == nil
	asked := trusted && here.Listing.Checksum != ""
	now := o.Now()
	if age := now.Sub(st.CheckedAt); asked && o.CheckInterval > 0 && age >= 0 && age < o.CheckInterval {
		return NotChecked, nil
	}
	src, err := openSource(o)
	if err != nil {
		return "", err
	}
	known := cacheValidators{st.ETag, st.Modified}
	if !asked {
		known = cacheValidators{}
	}
	offer, err := src.fetchListing(ctx, known)
	if err != nil {
		return "", err
	}
	if offer.notModified {
		st.CheckedAt = now
		return Current, p.saveCurrent(st)
	}
	l, err := ParseListing(offer.body, o.MaxSize)
	if err == nil {
		err = l.verify(o.Key)
	}
	if err == nil && l.Built.Sub(now) > maxClockSkew {
		err = fmt.Errorf("the listed database is of %s, which is in the future: the clock of this machine, or of the "+
			"one that built it, is wrong", l.Built.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return "", err
	}
	if here.Present && !isReplacement(l, here, trusted) {
		st.CheckedAt = now
		if asked {
			st.ETag, st.Modified = offer.ETag, offer.Modified
		}
		return Current, p.saveCurrent(st)
	}
	if err := p.downloadDatabase(ctx, o, src, l); err != nil {
		return "", err
	}
	st = checkState{URL: o.Listing, CheckedAt: now, ETag: offer.ETag, Modified: offer.Modified, Listing: l}
	return Updated, writeJSON(p.statePath(), st)
}

// saveCurrent saves the state when the database is the newest, and removes a partial download.
func (p dbLocation) saveCurrent(st checkState) error {
	_ = os.Remove(p.partPath())
	st.PartListing = Listing{}
	return writeJSON(p.statePath(), st)
}

// isReplacement reports whether the listed database replaces the existing one. An older one never does: a
// user imports it to go back. An unsigned database that must be signed is replaced by any: its date
// is not trusted.
func isReplacement(l Listing, here Status, trusted bool) bool {
	if !trusted && here.Listing.Checksum != "" {
		return true
	}
	if l.Built.Equal(here.Info.Built) {
		return !trusted || here.Listing.Checksum != "" && l.Checksum != here.Listing.Checksum
	}
	return l.Built.After(here.Info.Built)
}
