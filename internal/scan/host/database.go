package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

const (
	updateTime  = time.Hour        // limit of one update
	firstLook   = time.Minute      // the first check is made within this time when a database is present
	retryAfter  = 10 * time.Minute // after a failure, growing up to the interval of the checks
	shareJitter = 10               // the next check is delayed by up to a tenth, to spread hosts
)

// keepDatabase checks for newer databases until ctx ends, and matches all packages against each.
// Between two checks nothing runs but one timer.
func (h *Host) keepDatabase(ctx context.Context) {
	s := &step{cause: ByDatabase}
	if err := h.match(ctx, s); err != nil && ctx.Err() == nil {
		h.failed(err, "Packages could not be compared with the database.")
	}
	h.tell(s)
	wait := h.firstWait()
	retries := retry.New(retryAfter, h.o.Database.Every)
	for {
		h.setNext(h.now().Add(wait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = h.o.Database.Every + jitter(h.o.Database.Every)
		if err := h.look(ctx, h.o.Database.Every); err != nil && ctx.Err() == nil {
			wait = retries.Next()
			continue
		}
		retries.Reset()
	}
}

// firstWait returns the time until the first check after a start.
func (h *Host) firstWait() time.Duration {
	st, _ := update.Look(h.o.Database.Path) // the status has the errors
	switch {
	case h.automatic() && !st.Present:
		return 0
	case !h.automatic() || st.Checked.IsZero():
		return jitter(firstLook)
	default:
		wait := time.Until(st.Checked.Add(h.o.Database.Every))
		return min(max(wait, 0), h.o.Database.Every) + jitter(firstLook) // the clock may have been set back
	}
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d)/shareJitter + 1)) //nolint:gosec // it only spreads load
}

// automatic reports whether newer databases are fetched without a request.
func (h *Host) automatic() bool {
	return !h.o.Database.Manual && h.o.Database.Listing != "" && h.o.Database.Path != ""
}

// look updates the database where that is automatic. It matches all packages against a database
// that has changed, whether this process or another one replaced it.
func (h *Host) look(ctx context.Context, every time.Duration) error {
	var err error
	if h.automatic() {
		err = h.fetch(ctx, every)
	}
	s := &step{cause: ByDatabase}
	judged := h.matchAll(ctx, s)
	if judged != nil && ctx.Err() == nil {
		h.failed(judged, "Packages could not be compared with the database.")
	}
	h.tell(s)
	return errors.Join(err, judged)
}

// fetch asks the listing for a newer database.
func (h *Host) fetch(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, updateTime)
	defer cancel()
	st, err := update.Update(ctx, update.Options{
		Target: h.o.Database.Path, Listing: h.o.Database.Listing, Key: h.o.Database.Key,
		Every: every - every/shareJitter,
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked = err
	if err != nil {
		h.work.failures.Add(1)
		h.log.Warn("Update of the vulnerability database failed.", "error", err)
		return err
	}
	if st.Outcome == update.Updated {
		h.work.updates.Add(1)
		h.log.Info("Vulnerability database updated.", "built", st.Info.Built)
	}
	return nil
}

// UpdateDatabase looks for a newer database now, and compares all packages with it.
func (h *Host) UpdateDatabase(ctx context.Context) error {
	if h.life.Err() != nil {
		return ErrClosed
	}
	if h.o.Database.Listing == "" || h.o.Database.Path == "" {
		return errors.New("the URL for database updates is not configured (db-update-url)")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)() //nolint:contextcheck // whichever ends first
	err := h.fetch(ctx, 0)
	s := &step{cause: ByDatabase}
	judged := h.matchAll(ctx, s)
	h.tell(s)
	return errors.Join(err, judged)
}

// noteDatabase records why the database cannot be read.
func (h *Host) noteDatabase(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unread = err
}

func (h *Host) setNext(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextLook = t
}
