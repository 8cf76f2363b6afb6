// Package pass shows a node to the registry of its cloud: by the pass that its controller
// makes, which it asks for and renews, else by the user key that the node has joined with, else
// by nothing, as where nobody needs to show anything.
//
// It knows neither what is in a pass nor how a user key is used.
//
// Invariant: a registry that needs nothing never waits for a controller that is away longer than
// for one question, and what goes on there goes on.
package pass

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	askTimeout = 5 * time.Second
	// askAgain is the least time between two questions, whatever becomes of the answers; after
	// an answer that a registry refuses at once there is one more.
	askAgain = 5 * time.Second
	// noneLife is how long is believed that the controller has no passes to give.
	noneLife = time.Minute
	// ownLife is how long a registry that refused a new pass is shown the node's own key.
	ownLife = 10 * time.Minute
	// tellEvery bounds how often is said that a registry refuses the node.
	tellEvery = time.Minute
	// maxRefused bounds the registries that are remembered so: a cloud has one or two.
	maxRefused = 8
)

// Credentials show somebody to the registry at an address. They may be used from many
// goroutines.
type Credentials interface {
	// Authorize puts what shows them on a request that is about to be sent.
	Authorize(r *http.Request, address string) error
	// Renew is told that the registry answered 401 to a request that Authorize was called with,
	// and says whether Authorize may do better now.
	Renew(r *http.Request, address string) bool
}

// Options say where passes come from.
type Options struct {
	Ask    func(ctx context.Context) (api.PassAnswer, error) // the controller for a pass
	Own    Credentials                                       // of the node's own; nil: it has none
	Logger *slog.Logger                                      // nil: nothing is said
}

// Holder has the pass of a node.
type Holder struct {
	o    Options
	turn chan struct{} // whoever asks the controller holds it

	mu      sync.Mutex           // guards the fields below
	pass    string               // "": there is none
	before  string               // the one before it
	since   time.Time            // when the controller gave it, or said that there is none
	life    time.Duration        // from then on; 0: nothing is known
	tried   time.Time            // when the controller was asked last
	failed  error                // why that gave nothing
	wanted  bool                 // a registry has refused what there was
	certain bool                 // the controller was asked after such a refusal
	refused map[string]time.Time // address -> since when a new pass is not taken there
	told    time.Time            // when a refusal was last told of
}

var _ Credentials = (*Holder)(nil)

// New makes a holder. It asks for nothing yet.
func New(o Options) *Holder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Holder{o: o, turn: make(chan struct{}, 1), refused: map[string]time.Time{}}
}

const (
	header = "Authorization"
	scheme = "Bearer "
)

// Authorize implements Credentials. It fails only when a registry asks for what the controller
// could not be asked for.
func (h *Holder) Authorize(r *http.Request, address string) error {
	text, err := h.current(r.Context())
	switch {
	case h.o.Own != nil && (text == "" && err == nil || h.prefersOwn(address)):
		return h.o.Own.Authorize(r, address)
	case err != nil:
		return farm.Unavailable(err, "The controller cannot be asked for what this node shows to the registry")
	case text != "":
		r.Header.Set(header, scheme+text)
	}
	return nil
}

// Shows says whether the node has anything to show to a registry.
func (h *Holder) Shows(ctx context.Context) bool {
	text, err := h.current(ctx)
	return h.o.Own != nil || err == nil && text != ""
}

// current gives the pass to use now, or "" for none. It is an error only when a registry has
// refused what there was.
func (h *Holder) current(ctx context.Context) (string, error) {
	if text, known, err := h.have(time.Now()); known {
		return text, err
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-h.turn }()
	if text, known, err := h.have(time.Now()); known { // somebody else has asked meanwhile
		return text, err
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := h.o.Ask(asked)
	h.take(answer, err, time.Now())
	text, _, err := h.have(time.Now())
	return text, err
}

// have gives what is known without asking; known is false when it is time to ask.
func (h *Holder) have(now time.Time) (text string, known bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := now.Sub(h.since)
	recent := !h.tried.IsZero() && now.Sub(h.tried) < askAgain
	switch {
	case h.pass != "" && age < h.life && (age < h.life/2 || recent):
		return h.pass, true, nil
	case h.pass == "" && age < h.life:
		return "", true, nil
	case recent && h.wanted:
		return "", true, h.failed
	}
	return "", recent, nil
}

// take notes what the controller has answered.
func (h *Holder) take(answer api.PassAnswer, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = now
	if farm.CodeOf(err) == farm.CodeNotFound { // a controller that knows no passes
		answer, err = api.PassAnswer{}, nil
	}
	if h.failed = err; err != nil {
		return
	}
	h.certain, h.wanted, h.since, h.life = h.wanted, false, now, noneLife
	if answer.Pass != h.pass {
		h.before = h.pass
	}
	if h.pass = answer.Pass; h.pass != "" {
		h.life = time.Duration(answer.Life) * time.Second
	}
}

// Renew implements Credentials.
func (h *Holder) Renew(r *http.Request, address string) bool {
	shown, isBearer := strings.CutPrefix(r.Header.Get(header), scheme)
	if again, mine := h.renew(shown, address, time.Now()); mine {
		return again
	}
	if isBearer && h.o.Own != nil && h.o.Own.Renew(r, address) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refused, address)
	h.tell(address, time.Now())
	return false
}

// renew is Renew for requests that had a pass or nothing; mine is false for others.
func (h *Holder) renew(shown, address string, now time.Time) (again, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pass != "" && now.Sub(h.since) >= h.life {
		h.drop()
	}
	fresh := now.Sub(h.since) < askAgain
	switch {
	case shown == h.pass && fresh && (h.certain || h.o.Own != nil): // "" as well: the controller has just said that there is none
		h.tell(address, now)
		if shown != "" {
			h.refuse(address, now)
		}
		return h.o.Own != nil && shown != "", true
	case shown == "" && h.pass != "", shown != "" && shown == h.before:
		return true, true // there is a newer one
	case shown == h.pass:
		h.drop()
		h.wanted = true
		if fresh { // what was said a moment before may be of another life of the controller
			h.tried = time.Time{}
		}
		return true, true
	}
	return false, false
}

// drop forgets the pass.
func (h *Holder) drop() {
	if h.pass != "" {
		h.before = h.pass
	}
	h.pass, h.life = "", 0
}

// refuse notes that a registry takes no pass of this controller.
func (h *Holder) refuse(address string, now time.Time) {
	if len(h.refused) >= maxRefused {
		clear(h.refused)
	}
	h.refused[address] = now
}

// prefersOwn says whether a registry is shown the node's own key.
func (h *Holder) prefersOwn(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, is := h.refused[address]
	return is && time.Since(since) < ownLife
}

// tell says, not too often, that a registry refuses what this node has.
func (h *Holder) tell(address string, now time.Time) {
	if now.Sub(h.told) < tellEvery {
		return
	}
	h.told = now
	h.o.Logger.Warn("the registry does not take what this node shows: do controller and registry run with the same root token?", "registry", address, "pass", h.pass != "", "key", h.o.Own != nil)
}
