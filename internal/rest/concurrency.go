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
	operations   string // in the plural, for the refusal
	settingName  string // with which an operator raises the total; "": none
	maxPerCaller int
	maxTotal     int

	mu           sync.Mutex // guards the fields below
	openTotal    int
	openByCaller map[string]int // only callers with open ones
}

// busyRetryDelay is the retry delay sent to a caller that met a full limit.
const busyRetryDelay = 5 * time.Second

// NewConcurrencyLimit makes a limit of total operations; one caller may have a quarter of them, rounded up.
// what names the operations in the plural, setting is the name of the setting with the total, "" for a fixed
// one. Both are part of the refusal.
func NewConcurrencyLimit(what, setting string, total int) *ConcurrencyLimit {
	return &ConcurrencyLimit{
		operations: what, settingName: setting, maxTotal: total, maxPerCaller: farm.CallerShare(total),
		openByCaller: map[string]int{},
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
	case l.openTotal >= l.maxTotal:
		sentence := fmt.Sprintf("Limit of %d open %s reached", l.maxTotal, l.operations)
		if l.settingName != "" {
			sentence += fmt.Sprintf(" (setting %s)", l.settingName)
		}
		return nil, l.fullError(sentence)
	case caller != "" && l.openByCaller[caller] >= l.maxPerCaller:
		of := fmt.Sprint("the ", l.maxTotal, " open in all")
		if l.settingName != "" {
			of = fmt.Sprintf("the setting %s (%d)", l.settingName, l.maxTotal)
		}
		return nil,
			l.fullError(fmt.Sprintf("You have %d %s open, the limit per caller: a quarter of %s", l.maxPerCaller,
				l.operations, of))
	}
	l.openTotal++
	if caller != "" {
		l.openByCaller[caller]++
	}
	return sync.OnceFunc(func() { l.release(caller) }), nil
}

// OpenCount returns how many are open now.
func (l *ConcurrencyLimit) OpenCount() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openTotal
}

func (l *ConcurrencyLimit) release(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openTotal--
	if caller == "" {
		return
	}
	if l.openByCaller[caller]--; l.openByCaller[caller] == 0 {
		delete(l.openByCaller, caller)
	}
}

func (l *ConcurrencyLimit) fullError(sentence string) error {
	return farm.Busy(busyRetryDelay, "%s; close some, or try again later", sentence)
}

// CallerName returns the name under which a caller's open requests are counted: that of the verified
// credential, or else its address. The user a program acts for counts only if the program may do everything.
// Any other program would get a share for each name that it makes up.
func CallerName(r *http.Request) string {
	c := CallerOf(r.Context())
	switch {
	case c.IsNode():
		return "node " + c.Name
	case c.ActsFor != nil && (c.Root || c.Identity.Method == auth.ByLocal):
		return "for " + c.ActsFor.Name
	case c.KeyID != "":
		return "key " + c.KeyID
	case c.Name != "":
		return "user " + c.Name
	case c.Address != "":
		return "address " + auth.LimiterKey(c.Address)
	}
	return "address " + auth.LimiterKey(clientAddress(r, false))
}
