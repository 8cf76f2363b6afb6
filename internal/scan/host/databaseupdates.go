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
	updateTimeout   = time.Hour        // limit of one update
	firstCheckDelay = time.Minute      // the first check is made within this time when a database is present
	minRetryDelay   = 10 * time.Minute // after a failure, growing up to the interval of the checks
	jitterDivisor   = 10               // the next check is delayed by up to a tenth, to spread hosts
)

// runDatabaseUpdates checks for newer databases until ctx ends, and matches all packages against each.
// Between two checks nothing runs but one timer.
func (h *Host) runDatabaseUpdates(ctx context.Context) {
	s := &changeCollector{cause: ByDatabase}
	if err := h.match(ctx, s); err != nil && ctx.Err() == nil {
		h.recordFailure(err, "Packages could not be compared with the database.")
	}
	h.notifyChange(s)
	wait := h.firstCheckWait()
	retries := retry.New(minRetryDelay, h.opts.Database.UpdateInterval)
	for {
		h.setNextUpdate(h.monotonicNow().Add(wait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = h.opts.Database.UpdateInterval + jitter(h.opts.Database.UpdateInterval)
		if err := h.checkDatabase(ctx, h.opts.Database.UpdateInterval); err != nil && ctx.Err() == nil {
			wait = retries.Next()
			continue
		}
		retries.Reset()
	}
}

// firstCheckWait returns the time until the first check after a start.
func (h *Host) firstCheckWait() time.Duration {
	st, _ := update.CurrentStatus(h.opts.Database.Path) // the status has the errors
	switch {
	case h.updatesAutomatically() && !st.Present:
		return 0
	case !h.updatesAutomatically() || st.CheckedAt.IsZero():
		return jitter(firstCheckDelay)
	default:
		wait := time.Until(st.CheckedAt.Add(h.opts.Database.UpdateInterval))
		// the clock may have been set back
		return min(max(wait, 0), h.opts.Database.UpdateInterval) + jitter(firstCheckDelay)
	}
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d)/jitterDivisor + 1)) //nolint:gosec // it only spreads load
}

// updatesAutomatically reports whether newer databases are fetched without a request.
func (h *Host) updatesAutomatically() bool {
	return !h.opts.Database.Manual && h.opts.Database.Listing != "" && h.opts.Database.Path != ""
}

// checkDatabase updates the database where that is automatic. It matches all packages against a database
// that has changed, whether this process or another one replaced it.
func (h *Host) checkDatabase(ctx context.Context, every time.Duration) error {
	var err error
	if h.updatesAutomatically() {
		err = h.fetchDatabase(ctx, every)
	}
	s := &changeCollector{cause: ByDatabase}
	matchErr := h.matchAll(ctx, s)
	if matchErr != nil && ctx.Err() == nil {
		h.recordFailure(matchErr, "Packages could not be compared with the database.")
	}
	h.notifyChange(s)
	return errors.Join(err, matchErr)
}

// fetchDatabase asks the listing for a newer database.
func (h *Host) fetchDatabase(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	st, err := update.Update(ctx, update.Options{
		Target: h.opts.Database.Path, Listing: h.opts.Database.Listing, Key: h.opts.Database.Key,
		CheckInterval: every - every/jitterDivisor,
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updateErr = err
	if err != nil {
		h.counters.failures.Add(1)
		h.log.Warn("Update of the vulnerability database failed.", "error", err)
		return err
	}
	if st.Outcome == update.Updated {
		h.counters.updates.Add(1)
		h.log.Info("Vulnerability database updated.", "built", st.Info.Built)
	}
	return nil
}

// UpdateDatabase looks for a newer database now, and compares all packages with it.
func (h *Host) UpdateDatabase(ctx context.Context) error {
	if h.runCtx.Err() != nil {
		return ErrClosed
	}
	if h.opts.Database.Listing == "" || h.opts.Database.Path == "" {
		return errors.New("the URL for database updates is not configured (db-update-url)")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.runCtx, cancel)() //nolint:contextcheck // whichever ends first
	err := h.fetchDatabase(ctx, 0)
	s := &changeCollector{cause: ByDatabase}
	matchErr := h.matchAll(ctx, s)
	h.notifyChange(s)
	return errors.Join(err, matchErr)
}

// setDatabaseError records why the database cannot be read.
func (h *Host) setDatabaseError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.databaseErr = err
}

func (h *Host) setNextUpdate(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextUpdate = t
}
