package buildyard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// errBreakerOpen is the cause of a failure that an open breaker returns without a call.
var errBreakerOpen = errors.New("not retried yet after a recent failure")

// breakerRetryInterval is how long a breaker stays open until one call tries again.
const breakerRetryInterval = 2 * time.Second

// breaker keeps callers from waiting, one after the other, for a service that does not answer:
// after such a failure one call per breakerRetryInterval is made, the others fail immediately. The zero
// value is ready.
type breaker struct {
	mu      sync.Mutex
	retryAt time.Time // when the next call is made; zero: all are
}

// allows reports whether a call is to be made.
func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.retryAt.IsZero():
		return true
	case now.Before(b.retryAt):
		return false
	default:
		b.retryAt = now.Add(breakerRetryInterval)
		return true
	}
}

// record records the result of a call. A canceled call changes nothing.
func (b *breaker) record(ctx context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case farm.CodeOf(err) == farm.CodeUnavailable:
		b.retryAt = time.Now().Add(breakerRetryInterval)
	case ctx.Err() == nil:
		b.retryAt = time.Time{}
	}
}

// Bounds of the remembered rights of callers.
const (
	rightsAge  = time.Hour
	rightsMost = 4096
)

// rightsCache caches the registry's last responses about rights of callers, for use while it does not
// answer. The zero value is ready.
type rightsCache struct {
	mu      sync.Mutex
	entries map[string]rightsEntry
}

type rightsEntry struct {
	rights   *api.CallerRights
	cachedAt time.Time
}

// rightsKey distinguishes callers by everything that their rights depend on: the identity sent to
// the registry.
func rightsKey(c rest.Caller, template string) string {
	who := c.ForwardedUser()
	groups := slices.Sorted(slices.Values(who.Groups))
	return strings.Join([]string{
		template, string(who.Method), who.KeyID, who.Name, strings.Join(groups, "\x00"), "\x00",
	}, "\x01")
}

func (l *rightsCache) put(c rest.Caller, template string, rights *api.CallerRights) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil || len(l.entries) >= rightsMost {
		l.entries = map[string]rightsEntry{}
	}
	l.entries[rightsKey(c, template)] = rightsEntry{rights, time.Now()}
}

// get returns the last response about a caller and a template, or about the caller where resource
// rights on templates are not enforced.
func (l *rightsCache) get(c rest.Caller, template string) (*api.CallerRights, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, about := range []string{template, ""} {
		s, ok := l.entries[rightsKey(c, about)]
		if ok && time.Since(s.cachedAt) < rightsAge && (about == template || !s.rights.Managed) {
			return s.rights, true
		}
	}
	return nil, false
}
