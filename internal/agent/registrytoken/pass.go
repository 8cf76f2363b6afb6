// Package registrytoken shows a node to the registry of its cloud: by the node token that its controller
// makes for one purpose, which it asks for and renews, else by the user key that the node has
// joined with, else by nothing, as where nobody needs to show anything.
//
// It knows neither what is in a token nor how a user key is used.
//
// Invariant: a registry that needs nothing never waits for a controller that is away longer than
// for one question, and what continues there continues.
package registrytoken

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	askTimeout = 5 * time.Second
	// askAgain is the minimum time between two questions, whatever becomes of the answers; after
	// an answer that a registry refuses at once there is one more.
	askAgain = 5 * time.Second
	// noneLife is how long is trusted that the controller has no passes to give.
	noneLife = time.Minute
	// ownLife is how long a registry that refused a new pass is shown the node's own key.
	ownLife = 10 * time.Minute
	// tellEvery bounds how often is said that a registry refuses the node.
	tellEvery = time.Minute
	// maxRefused bounds the registries that are remembered so: a cloud has one or two.
	maxRefused = 8
	// maxTokens bounds the tokens that are kept, each for one purpose.
	maxTokens = 512
)

type purposeKey struct{}

// For returns a context for requests to a registry with one purpose.
func For(ctx context.Context, purpose api.TokenPurpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, purpose)
}

// purposeOf returns what the requests of a context are for; the zero value for anything that the node was told.
func purposeOf(ctx context.Context) api.TokenPurpose {
	purpose, _ := ctx.Value(purposeKey{}).(api.TokenPurpose)
	return purpose
}

// Credentials show somebody to the registry at an address. They may be used from many
// goroutines.
type Credentials interface {
	// Authorize puts what shows them on a request that is about to be sent.
	Authorize(r *http.Request, address string) error
	// Renew is told that the registry answered 401 to a request that Authorize was called with,
	// and says whether Authorize may do better now.
	Renew(r *http.Request, address string) bool
}

// Options say where tokens come from.
type Options struct {
	Ask    func(ctx context.Context, purpose api.TokenPurpose) (api.RegistryTokenResponse, error) // the controller for a token
	Own    Credentials                                                                            // of the node's own; nil: it has none
	Logger *slog.Logger                                                                           // nil: nothing is said
}

// Source has the tokens of a node, one for each purpose.
type Source struct {
	o    Options
	turn chan struct{} // whoever asks the controller holds it

	mu      sync.Mutex                  // guards the fields below
	tokens  map[api.TokenPurpose]*token // purpose -> what is known for it
	none    time.Time                   // when the controller last said that it has no tokens
	away    time.Time                   // when the controller last could not be asked
	refused map[string]time.Time        // address -> since when a new token is not taken there
	told    time.Time                   // when a refusal was last told of
}

// token is what a node has for one purpose. The mu of its Holder guards it.
type token struct {
	pass    string        // "": there is none
	before  string        // the one before it
	since   time.Time     // when the controller gave it, or said that there is none
	life    time.Duration // from then on; 0: nothing is known
	tried   time.Time     // when the controller was asked last
	failed  error         // why that gave nothing
	wanted  bool          // a registry has refused what there was
	certain bool          // the controller was asked after such a refusal
}

var _ Credentials = (*Source)(nil)

// New makes a holder. It asks for nothing yet.
func New(o Options) *Source {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, turn: make(chan struct{}, 1), tokens: map[api.TokenPurpose]*token{}, refused: map[string]time.Time{}}
}

const (
	header = "Authorization"
	scheme = "Bearer "
)

// Authorize implements Credentials. It fails only when a registry asks for what the controller
// could not be asked for, or when the node was not told to do what the request is for.
func (h *Source) Authorize(r *http.Request, address string) error {
	text, err := h.current(r.Context(), purposeOf(r.Context()))
	switch {
	case h.o.Own != nil && (text == "" && err == nil || h.prefersOwn(address)):
		return h.o.Own.Authorize(r, address)
	case farm.CodeOf(err) == farm.CodeForbidden:
		return err
	case err != nil:
		return farm.Unavailable(err, "The controller cannot be asked for what this node shows to the registry")
	case text != "":
		r.Header.Set(header, scheme+text)
	}
	return nil
}

// current returns the token to use now, or "" for none. It is an error only when a registry has
// refused what there was, or the controller refuses one.
func (h *Source) current(ctx context.Context, purpose api.TokenPurpose) (string, error) {
	if text, known, err := h.have(purpose, time.Now()); known {
		return text, err
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-h.turn }()
	if text, known, err := h.have(purpose, time.Now()); known { // somebody else has asked meanwhile
		return text, err
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := h.o.Ask(asked, purpose)
	h.take(purpose, answer, err, time.Now())
	text, _, err := h.have(purpose, time.Now())
	return text, err
}

// tokenLocked returns what is known for a purpose. It makes room where there are too many.
func (h *Source) tokenLocked(purpose api.TokenPurpose, now time.Time) *token {
	t := h.tokens[purpose]
	if t != nil {
		return t
	}
	if len(h.tokens) >= maxTokens {
		maps.DeleteFunc(h.tokens, func(_ api.TokenPurpose, old *token) bool {
			return now.Sub(old.since) >= old.life && now.Sub(old.tried) >= askAgain
		})
	}
	if len(h.tokens) >= maxTokens {
		clear(h.tokens) // they are asked for again
	}
	t = &token{}
	h.tokens[purpose] = t
	return t
}

// have returns what is known without asking; known is false when it is time to ask.
func (h *Source) have(purpose api.TokenPurpose, now time.Time) (text string, known bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	age := now.Sub(t.since)
	recent := !t.tried.IsZero() && now.Sub(t.tried) < askAgain
	switch {
	case t.pass != "" && age < t.life && (age < t.life/2 || recent):
		return t.pass, true, nil
	case t.pass == "" && age < t.life:
		return "", true, nil
	case recent && (t.wanted || farm.CodeOf(t.failed) == farm.CodeForbidden):
		return "", true, t.failed
	case t.pass == "" && !t.wanted && (within(h.none, noneLife, now) || within(h.away, askAgain, now)):
		return "", true, nil // it was just asked for another purpose
	}
	return "", recent, nil
}

// within reports whether something that happened is no longer ago than a time.
func within(at time.Time, d time.Duration, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) < d
}

// take notes what the controller has answered.
func (h *Source) take(purpose api.TokenPurpose, answer api.RegistryTokenResponse, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	t.tried = now
	if farm.CodeOf(err) == farm.CodeNotFound { // a controller that knows no tokens
		answer, err = api.RegistryTokenResponse{}, nil
	}
	if t.failed = err; err != nil {
		if farm.CodeOf(err) != farm.CodeForbidden {
			h.away = now
		}
		return
	}
	h.away, h.none = time.Time{}, time.Time{}
	t.certain, t.wanted, t.since, t.life = t.wanted, false, now, noneLife
	if answer.Pass != t.pass {
		t.before = t.pass
	}
	if t.pass = answer.Pass; t.pass != "" {
		t.life = time.Duration(answer.Life) * time.Second
	} else {
		h.none = now
	}
}

// Renew implements Credentials.
func (h *Source) Renew(r *http.Request, address string) bool {
	shown, isBearer := strings.CutPrefix(r.Header.Get(header), scheme)
	if again, mine := h.renew(purposeOf(r.Context()), shown, address, time.Now()); mine {
		return again
	}
	if isBearer && h.o.Own != nil && h.o.Own.Renew(r, address) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refused, address)
	h.tell(address, shown != "", time.Now())
	return false
}

// renew is Renew for requests that had a token or nothing; mine is false for others.
func (h *Source) renew(purpose api.TokenPurpose, shown, address string, now time.Time) (again, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	if t.pass != "" && now.Sub(t.since) >= t.life {
		t.drop()
	}
	fresh := now.Sub(t.since) < askAgain
	switch {
	case shown == t.pass && fresh && (t.certain || h.o.Own != nil): // "" as well: the controller has just said that there is none
		h.tell(address, shown != "", now)
		if shown != "" {
			h.refuse(address, now)
		}
		return h.o.Own != nil && shown != "", true
	case shown == "" && t.pass != "", shown != "" && shown == t.before:
		return true, true // there is a newer one
	case shown == t.pass:
		t.drop()
		t.wanted = true
		if fresh { // what was said a moment before may be of another life of the controller
			t.tried = time.Time{}
		}
		return true, true
	}
	return false, false
}

// drop forgets the token.
func (t *token) drop() {
	if t.pass != "" {
		t.before = t.pass
	}
	t.pass, t.life = "", 0
}

// refuse notes that a registry takes no pass of this controller.
func (h *Source) refuse(address string, now time.Time) {
	if len(h.refused) >= maxRefused {
		clear(h.refused)
	}
	h.refused[address] = now
}

// prefersOwn reports whether a registry is shown the node's own key.
func (h *Source) prefersOwn(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, is := h.refused[address]
	return is && time.Since(since) < ownLife
}

// tell says, not too often, that a registry refuses what this node has.
func (h *Source) tell(address string, shown bool, now time.Time) {
	if now.Sub(h.told) < tellEvery {
		return
	}
	h.told = now
	h.o.Logger.Warn("the registry does not take what this node shows: do controller and registry run with the same root token?", "registry", address, "token", shown, "key", h.o.Own != nil)
}
