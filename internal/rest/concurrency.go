package rest

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// ConcurrencyLimit bounds how many long-lived operations are open at a time, per caller and in total: streams,
// watches, slow connections. A nil one has no limit.
type ConcurrencyLimit struct {
	what      string // in the plural, for the refusal
	setting   string // with which an operator raises the total; "": none
	perCaller int
	total     int

	mu       sync.Mutex // guards what follows
	open     int
	byCaller map[string]int // only callers with open ones
}

// busyRetry is the retry delay sent to a caller that met a full limit.
const busyRetry = 5 * time.Second

// NewConcurrencyLimit makes a limit of total operations; one caller may have a quarter of them, rounded up.
// what names the operations in the plural, setting is the name of the setting with the total, "" for a fixed
// one. Both are part of the refusal.
func NewConcurrencyLimit(what, setting string, total int) *ConcurrencyLimit {
	return &ConcurrencyLimit{
		what: what, setting: setting, total: total, perCaller: farm.CallerShare(total), byCaller: map[string]int{},
	}
}

// Acquire takes a slot for the caller of a request, or fails with farm.CodeBusy. The caller must call release
// once.
func (l *ConcurrencyLimit) Acquire(r *http.Request) (release func(), err error) {
	return l.AcquireFor(CallerName(r))
}

// AcquireFor is Acquire for a named caller. The empty name counts only in the total.
func (l *ConcurrencyLimit) AcquireFor(caller string) (release func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= l.total:
		sentence := fmt.Sprintf("Limit of %d open %s reached", l.total, l.what)
		if l.setting != "" {
			sentence += fmt.Sprintf(" (setting %s)", l.setting)
		}
		return nil, l.full(sentence)
	case caller != "" && l.byCaller[caller] >= l.perCaller:
		of := fmt.Sprint("the ", l.total, " open in all")
		if l.setting != "" {
			of = fmt.Sprintf("the setting %s (%d)", l.setting, l.total)
		}
		return nil,
			l.full(fmt.Sprintf("You have %d %s open, the limit per caller: a quarter of %s", l.perCaller, l.what, of))
	}
	l.open++
	if caller != "" {
		l.byCaller[caller]++
	}
	return sync.OnceFunc(func() { l.release(caller) }), nil
}

// Open returns how many are open now.
func (l *ConcurrencyLimit) Open() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *ConcurrencyLimit) release(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if caller == "" {
		return
	}
	if l.byCaller[caller]--; l.byCaller[caller] == 0 {
		delete(l.byCaller, caller)
	}
}

func (l *ConcurrencyLimit) full(sentence string) error {
	return farm.Busy(busyRetry, "%s; close some, or try again later", sentence)
}

// CallerName returns the name under which a caller's open requests are counted: that of the verified
// credential, or else its address. The user a program acts for counts only if the program may do everything.
// Any other program would get a share for each name that it makes up.
func CallerName(r *http.Request) string {
	c := CallerOf(r.Context())
	switch {
	case c.IsNode():
		return "node " + c.Name
	case c.For != nil && (c.Root || c.Identity.Method == auth.ByLocal):
		return "for " + c.For.Name
	case c.KeyID != "":
		return "key " + c.KeyID
	case c.Name != "":
		return "user " + c.Name
	case c.Address != "":
		return "address " + auth.Neighborhood(c.Address)
	}
	return "address " + auth.Neighborhood(addressOf(r, false))
}
