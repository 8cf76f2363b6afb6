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

// Options say where a database lies and where a newer one is looked for.
type Options struct {
	Target  string            // file of the database
	Listing string            // http(s) or file URL, or path, of the listing
	Key     ed25519.PublicKey // that listings must be signed with; nil: signatures are not looked at

	// Every is how long the last check counts; until then nobody is asked. 0 always asks.
	Every time.Duration
	// Stall is how long a server may send nothing; 0 is 30 s.
	Stall time.Duration
	// Within is how long all of it may take once no other update runs, however much comes; 0 is
	// without end. What came until then is kept, and the next update continues there.
	Within time.Duration
	// Wait is how long another update of the same database is waited for; 0 is without end.
	Wait time.Duration
	// MaxSize is how many bytes a database may have; 0 is 400 MiB.
	MaxSize int64

	Client   *http.Client     // nil is one that takes no redirect from https to http
	Now      func() time.Time // nil is the clock
	Progress func(done, total int64)
}

// Outcome is what an update found.
type Outcome string

// The outcomes.
const (
	Updated    Outcome = "updated"     // a newer database is there now
	Current    Outcome = "current"     // that which is there is the newest
	NotChecked Outcome = "not checked" // the last check was a short time ago
	Failed     Outcome = "failed"      // the database is as it was
)

// Status says which database is there, and what an update did about it.
type Status struct {
	Outcome Outcome
	Present bool        // there is a database, and it can be read
	Info    vulndb.Info // of it
	Checked time.Time   // when the listing was last asked for with success; zero is never
	Listing Listing     // that the database came with; of a bare file that was imported, what it would be; zero when it was built here
}

const usualStall = 30 * time.Second

func (o Options) filled() Options {
	if o.Stall == 0 {
		o.Stall = usualStall
	}
	if o.MaxSize == 0 {
		o.MaxSize = usualMost
	}
	if o.Client == nil {
		o.Client = &http.Client{CheckRedirect: onlySafer}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// Look returns what database is there, without asking anybody. One that cannot be read is
// not present, and the error says why; a missing one is no error.
func Look(target string) (Status, error) {
	p := dbLocation(target)
	st := p.load()
	s := Status{Checked: st.Checked}
	db, err := vulndb.Open(target)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Present, s.Info = true, db.Info()
	s.Listing = p.origin(s.Info, st)
	return s, db.Close()
}

// Verify reports whether the database at a path may be judged by where a key is set: whatever
// was fetched or imported must be signed, also when that was before. What was built here
// came from nobody else. One that is missing or cannot be read is no error here.
func Verify(target string, key ed25519.PublicKey) error {
	if _, err := dbLocation(target).read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it cannot be read whether the vulnerability database at %s is signed: %w", ErrSignature, target, err)
	}
	s, _ := Look(target) // whoever opens it is told
	if s.Listing.Checksum == "" {
		return nil
	}
	if err := s.Listing.verify(key); err != nil {
		return fmt.Errorf("the vulnerability database of %s at %s is not used: %w", s.Info.Built.Format(time.DateOnly), target, err)
	}
	return nil
}

// Update brings the database up to date. When that fails, the error says so, and the
// status what is still there.
func Update(ctx context.Context, o Options) (Status, error) {
	o = o.filled()
	p := dbLocation(o.Target)
	release, err := p.hold(ctx, o.Wait)
	if err == nil {
		defer release()
		if o.Within > 0 {
			var cancel func()
			ctx, cancel = context.WithTimeoutCause(ctx, o.Within, fmt.Errorf("it takes longer than %s", o.Within))
			defer cancel()
		}
		var outcome Outcome
		outcome, err = p.update(ctx, o)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // not how it showed
		}
		if err == nil {
			s, err := Look(o.Target)
			s.Outcome = outcome
			return s, err
		}
	}
	s, lookErr := Look(o.Target)
	s.Outcome = Failed
	switch {
	case s.Present:
		err = fmt.Errorf("update the vulnerability database: %w; that of %s stays in use", err, s.Info.Built.Format(time.DateOnly))
	case lookErr != nil:
		err = fmt.Errorf("update the vulnerability database: %w; and there is none that can be used: %w", err, lookErr)
	default:
		err = fmt.Errorf("update the vulnerability database: %w; and there is none yet", err)
	}
	return s, err
}

// update does the work; the lock is held.
func (p dbLocation) update(ctx context.Context, o Options) (Outcome, error) {
	here, st := p.recall()
	if st.URL != o.Listing {
		st = state{URL: o.Listing, Listing: st.Listing, Part: st.Part}
	}
	// What was asked last says nothing of a database that was built or restored here since.
	trusted := here.Listing.verify(o.Key) == nil
	asked := trusted && here.Listing.Checksum != ""
	now := o.Now()
	if age := now.Sub(st.Checked); asked && o.Every > 0 && age >= 0 && age < o.Every {
		return NotChecked, nil
	}
	src, err := open(o)
	if err != nil {
		return "", err
	}
	known := validators{st.ETag, st.Modified}
	if !asked {
		known = validators{}
	}
	offer, err := src.listing(ctx, known)
	if err != nil {
		return "", err
	}
	if offer.same {
		st.Checked = now
		return Current, p.settled(st)
	}
	l, err := ParseListing(offer.body, o.MaxSize)
	if err == nil {
		err = l.verify(o.Key)
	}
	if err != nil {
		return "", err
	}
	if here.Present && !newer(l, here, trusted) {
		st.Checked = now
		if asked {
			st.ETag, st.Modified = offer.ETag, offer.Modified
		}
		return Current, p.settled(st)
	}
	if err := p.fetch(ctx, o, src, l); err != nil {
		return "", err
	}
	st = state{URL: o.Listing, Checked: now, ETag: offer.ETag, Modified: offer.Modified, Listing: l}
	return Updated, writeJSON(p.state(), st)
}

// settled keeps the state of a place whose database is the newest: nothing is half fetched.
func (p dbLocation) settled(st state) error {
	_ = os.Remove(p.part())
	st.Part = Listing{}
	return writeJSON(p.state(), st)
}

// newer reports whether what is listed replaces what is here. An older one never does: who
// wants to go back imports it. What is here and not signed, though it should be, is
// replaced by any: its date protects nothing.
func newer(l Listing, here Status, trusted bool) bool {
	if !trusted && here.Listing.Checksum != "" {
		return true
	}
	if l.Built.Equal(here.Info.Built) {
		return !trusted || here.Listing.Checksum != "" && l.Checksum != here.Listing.Checksum
	}
	return l.Built.After(here.Info.Built)
}
