package auth

import (
	"context"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Nonce identifies a value that can be used once. It is not secret.
type Nonce [16]byte

// NonceStore remembers used nonces.
type NonceStore interface {
	// Use reports whether a nonce is used for the first time, and remembers it until then. The
	// result true is durable: no other call returns it for the same nonce, on any replica, even
	// after a crash. After an error the nonce may be used or not. A nonce always comes with the
	// same time; one whose time is over counts as used.
	Use(ctx context.Context, m Nonce, until time.Time) (first bool, err error)
}

// MaxNonces bounds how many nonces are remembered at a time.
const MaxNonces = 1_000_000

// ErrNoncesFull is the refusal when there are too many nonces.
var ErrNoncesFull = farm.Errorf(farm.CodeBusy, "Too many sessions were opened in the last minutes; try again later")

// MemoryNonces is a NonceStore in memory. The zero value is ready.
type MemoryNonces struct {
	mu sync.Mutex // guards the fields below
	// noncesByMinute maps the minute in which they may be forgotten to nonces.
	noncesByMinute map[int64]map[Nonce]struct{}
	count          int
	sweptMinute    int64 // the minute in which old ones were forgotten last
}

var _ NonceStore = (*MemoryNonces)(nil)

// Use implements NonceStore.
func (t *MemoryNonces) Use(_ context.Context, m Nonce, until time.Time) (bool, error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneLocked(now.Unix() / 60)
	if !until.After(now) {
		return false, nil
	}
	for _, minute := range t.noncesByMinute {
		if _, used := minute[m]; used {
			return false, nil
		}
	}
	if t.count >= MaxNonces {
		return false, ErrNoncesFull
	}
	at := until.Unix()/60 + 1
	if t.noncesByMinute == nil {
		t.noncesByMinute = map[int64]map[Nonce]struct{}{}
	}
	if t.noncesByMinute[at] == nil {
		t.noncesByMinute[at] = map[Nonce]struct{}{}
	}
	t.noncesByMinute[at][m] = struct{}{}
	t.count++
	return true, nil
}

// pruneLocked removes expired nonces.
func (t *MemoryNonces) pruneLocked(minute int64) {
	if minute == t.sweptMinute {
		return
	}
	t.sweptMinute = minute
	for at, marks := range t.noncesByMinute {
		if at <= minute {
			t.count -= len(marks)
			delete(t.noncesByMinute, at)
		}
	}
}
