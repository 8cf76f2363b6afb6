package s3store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// OwnerKey is the key of the lease of a prefix.
const OwnerKey = ".owner"

const (
	maxOwnerBytes = 4 << 10
	// maxClockDifference is the largest difference of two clocks with which S3 accepts requests of both: each may
	// differ from the server's by 15 minutes.
	maxClockDifference = 30 * time.Minute
	// putLimit and putRate bound one metadata request: the registry holds back other changes until it ends.
	putLimit = 10 * time.Second
	putRate  = 1 << 20 // bytes/s, in addition
)

// Owner is the content of the lease object.
type Owner struct {
	ID       string    `json:"id"`    // of the working directory of the registry
	Epoch    int64     `json:"epoch"` // increases with each change of the owner
	Expires  time.Time `json:"expires"`
	Duration int64     `json:"duration_ms"` // of the lease
	Host     string    `json:"host,omitempty"`
	Address  string    `json:"address,omitempty"` // of the registry, for operators
	Released bool      `json:"released,omitempty"`
}

// OwnedError is the failure to get the lease because another registry renews it.
type OwnedError struct {
	Place string // bucket and prefix
	Owner Owner
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s is in use by the registry on host %s (%s), which renews its lease; stop that registry, "+
		"or use another prefix", e.Place, e.Owner.Host, e.Owner.Address)
}

// ErrLeaseLost is the failure of a write after another registry got the lease.
var ErrLeaseLost = errors.New("another registry owns the bucket")

// errSlowPut is the failure of a metadata write that took longer than its limit. Its outcome is unknown.
var errSlowPut = unavailable(errors.New("the S3 server has not responded in time"))

// ErrLeaseExpired is the failure of a write while the lease could not be renewed. A later attempt may succeed.
var ErrLeaseExpired = unavailable(errors.New("the lease of the bucket has expired and could not be renewed"))

// Lease is the right of one process to write below a prefix. Writes and deletes that another owner could undo go
// through it.
type Lease struct {
	bucket *Bucket
	lost   chan struct{} // closed when another registry has the lease

	renewMu sync.Mutex // held during a renewal

	mu         sync.Mutex // guards the fields below
	owner      Owner
	etag       string
	validUntil time.Time // by the monotonic clock
	wallUntil  time.Time // by the wall clock: the monotonic one may stop while the machine sleeps
}

// Acquire gets the lease. It waits until the lease of an owner without contact has expired. While another owner
// renews it, the result is an OwnedError, or Acquire waits if Options.Standby is set. Only ID, Host and Address of
// me are used. A lease of the same ID and host is taken over immediately:
// its working directory is locked by this process.
func (b *Bucket) Acquire(ctx context.Context, me Owner) (*Lease, error) {
	l := &Lease{bucket: b, lost: make(chan struct{})}
	var seen observation
	for {
		held, etag, err := b.readOwner(ctx)
		if err != nil {
			return nil, err
		}
		if seen.mayTake(held, etag, me, time.Now()) {
			err := l.take(ctx, me, held.Epoch+1, etag)
			if !errors.Is(err, ErrConflict) {
				return l, err
			}
			continue
		}
		if seen.renewals > 0 && !b.opts.Standby {
			return nil, &OwnedError{Place: b.String(), Owner: held}
		}
		if err := pause(ctx, min(time.Second, time.Duration(held.Duration)*time.Millisecond/10)); err != nil {
			return nil, err
		}
	}
}

// readOwner reads the lease; the zero Owner and ETag when there is none.
func (b *Bucket) readOwner(ctx context.Context) (Owner, string, error) {
	raw, at, err := b.Get(ctx, OwnerKey, maxOwnerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Owner{}, "", nil
	}
	if err != nil {
		return Owner{}, "", err
	}
	var held Owner
	if err := json.Unmarshal(raw, &held); err != nil || held.ID == "" || held.Epoch < 0 || held.Duration < 0 {
		return Owner{}, "", fmt.Errorf("the lease object %s%s is damaged: make sure that no registry uses the prefix, "+
			"then remove the object", b, OwnerKey)
	}
	return held, at.ETag, nil
}

// observation is what a waiting registry has seen of the lease of another one.
type observation struct {
	etag     string
	since    time.Time
	renewals int
}

// mayTake reports whether the lease is free: there is none, it was released, it is the caller's, or it was not
// renewed for its duration, by the clock of the caller.
func (o *observation) mayTake(held Owner, etag string, me Owner, now time.Time) bool {
	if etag != o.etag {
		if o.etag != "" {
			o.renewals++
		}
		o.etag, o.since = etag, now
	}
	duration := time.Duration(held.Duration) * time.Millisecond
	mine := held.ID == me.ID && held.Host == me.Host
	return etag == "" || held.Released || mine || now.Sub(o.since) > duration+duration/10 ||
		now.Sub(held.Expires) > maxClockDifference
}

// take writes the lease in place of the one with an ETag.
func (l *Lease) take(ctx context.Context, me Owner, epoch int64, etag string) error {
	l.owner = Owner{ID: me.ID, Host: me.Host, Address: me.Address, Epoch: epoch}
	l.etag = etag
	return l.write(ctx, false)
}

// write renews or releases the lease.
func (l *Lease) write(ctx context.Context, release bool) error {
	l.renewMu.Lock()
	defer l.renewMu.Unlock()
	l.mu.Lock()
	next, etag := l.owner, l.etag
	l.mu.Unlock()
	duration := l.bucket.opts.LeaseDuration
	now := time.Now()
	next.Expires, next.Duration, next.Released = now.Add(duration).UTC(), duration.Milliseconds(), release
	raw, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode the lease: %w", err)
	}
	condition := Condition{ETag: etag, Absent: etag == ""}
	etag, err = l.bucket.Put(ctx, OwnerKey, raw, condition)
	if errors.Is(err, ErrConflict) {
		// An earlier renewal without a response may have been carried out since then.
		held, current, readErr := l.bucket.readOwner(ctx)
		if readErr != nil {
			return readErr // the next renewal decides
		}
		if held.ID != next.ID || held.Epoch != next.Epoch {
			return err
		}
		etag, err = l.bucket.Put(ctx, OwnerKey, raw, Condition{ETag: current})
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner, l.etag = next, etag
	if l.validUntil, l.wallUntil = now.Add(duration), now.Add(duration).Round(0); release {
		l.validUntil, l.wallUntil = now, now.Round(0)
	}
	return nil
}

// Run renews the lease until ctx ends or another registry has it.
func (l *Lease) Run(ctx context.Context) {
	tick := time.NewTicker(l.bucket.opts.LeaseDuration / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A request without response must leave time for another one, on a new connection.
		attempt, cancel := context.WithTimeout(ctx, l.bucket.opts.LeaseDuration/3)
		err := l.write(attempt, false)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, ErrConflict):
			close(l.lost)
			return
		default:
			l.bucket.opts.Logger.WarnContext(ctx, "lease of the bucket not renewed", "bucket", l.bucket.String(),
				"error", err)
		}
	}
}

// Lost is closed when another registry has the lease. Then this process must end.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release ends the lease, so that another registry need not wait. No call may follow.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.write(ctx, true); err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}

// Epoch returns the number of the owner.
func (l *Lease) Epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner.Epoch
}

// Duration returns how long the lease is valid after a renewal.
func (l *Lease) Duration() time.Duration { return l.bucket.opts.LeaseDuration }

// Valid returns an error if the lease has ended.
func (l *Lease) Valid() error {
	select {
	case <-l.lost:
		return ErrLeaseLost
	default:
	}
	if l.remaining() <= 0 {
		return ErrLeaseExpired
	}
	return nil
}

// remaining returns how long the lease is valid by both clocks.
func (l *Lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return min(l.validUntil.Sub(now), l.wallUntil.Sub(now.Round(0)))
}

// bounded returns a context that ends with the lease.
func (l *Lease) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := l.Valid(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.remaining(), ErrLeaseExpired)
	return ctx, cancel, nil
}

// Put is Bucket.Put while the lease is valid, for at most putLimit and the time for the bytes at putRate.
func (l *Lease) Put(ctx context.Context, key string, data []byte, c Condition) (etag string, err error) {
	ctx, cancel, err := l.bounded(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	limit := putLimit + time.Duration(len(data))*time.Second/putRate
	ctx, cancelSlow := context.WithTimeoutCause(ctx, limit, errSlowPut)
	defer cancelSlow()
	etag, err = l.bucket.Put(ctx, key, data, c)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return "", fmt.Errorf("write %s: %w", key, cause)
	}
	return etag, err
}

// Confirm reads the lease object and returns ErrLeaseLost if another registry has it.
func (l *Lease) Confirm(ctx context.Context) error {
	if err := l.Valid(); err != nil {
		return err
	}
	held, _, err := l.bucket.readOwner(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held.ID != l.owner.ID || held.Epoch != l.owner.Epoch {
		return ErrLeaseLost
	}
	return nil
}

// Delete removes an object; a missing one is not an error. The request is signed for the remaining time of the lease
// only, so the server refuses it when it arrives later.
func (l *Lease) Delete(ctx context.Context, key string) error {
	for attempt := 1; ; attempt++ {
		temporary, err := l.deleteOnce(ctx, key)
		if err == nil || !temporary || attempt >= l.bucket.opts.MaxAttemptsPerAction {
			return err
		}
		if err := pause(ctx, time.Duration(attempt)*100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (l *Lease) deleteOnce(ctx context.Context, key string) (temporary bool, err error) {
	ctx, cancel, err := l.bounded(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	expires := l.remaining().Truncate(time.Second)
	if expires < time.Second {
		return true, fmt.Errorf("delete %s: %w", key, ErrLeaseExpired)
	}
	b := l.bucket
	u, err := b.core.Presign(ctx, http.MethodDelete, b.opts.Bucket, b.fullKey(key), expires, url.Values{})
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	if err := l.Valid(); err != nil { // a pause since then would have moved the end of the signature
		return true, fmt.Errorf("delete %s: %w", key, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, u.String(), nil)
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		return true, fmt.Errorf("delete %s: %w", key, withoutQuery(err))
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode < 300 || resp.StatusCode == http.StatusNotFound:
		return false, nil
	default:
		return resp.StatusCode >= 500, fmt.Errorf("delete %s: the S3 server responded %s", key, resp.Status)
	}
}

// withoutQuery drops the signature that the error of a request names.
func withoutQuery(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
