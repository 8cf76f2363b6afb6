// Package registrytoken authenticates a node to the registry of its cloud: with the node token that
// its controller issues for one purpose, which it requests and renews, otherwise with the API key
// that the node joined with, otherwise anonymously, where the registry needs no authentication.
//
// It knows neither the content of a token nor how an API key is used.
//
// Invariant: requests to a registry without authentication wait for an unavailable controller no
// longer than for one request, and transfers there continue.
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
	// askAgain is the minimum time between two requests for a token, whatever their results; after
	// a token that a registry refuses immediately, one more is sent.
	askAgain = 5 * time.Second
	// noneLife is how long the response that the controller issues no tokens is valid.
	noneLife = time.Minute
	// ownLife is how long the node's own key is used for a registry that refused a new token.
	ownLife = 10 * time.Minute
	// tellEvery is the minimum interval between two log entries about a registry that refuses the node.
	tellEvery = time.Minute
	// maxRefused limits the registries that are remembered as refusing: a cloud has one or two.
	maxRefused = 8
	// maxTokens limits the cached tokens, each for one purpose.
	maxTokens = 512
)

type purposeKey struct{}

// WithPurpose returns a context for requests to a registry with one purpose.
func WithPurpose(ctx context.Context, purpose api.TokenPurpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, purpose)
}

// purposeOf returns the purpose of the requests of a context; the zero value stands for all orders
// of the node.
func purposeOf(ctx context.Context) api.TokenPurpose {
	purpose, _ := ctx.Value(purposeKey{}).(api.TokenPurpose)
	return purpose
}

// Credentials authenticate requests to the registry at an address. They may be used from many
// goroutines.
type Credentials interface {
	// Authorize adds the credential to a request that is about to be sent.
	Authorize(r *http.Request, address string) error
	// Renew is called when the registry answered 401 to a request that Authorize was called with.
	// It reports whether a new Authorize may succeed.
	Renew(r *http.Request, address string) bool
}

// Options define where tokens come from.
type Options struct {
	// Ask requests a token from the controller.
	Ask    func(ctx context.Context, purpose api.TokenPurpose) (api.RegistryTokenResponse, error)
	Own    Credentials  // the node's API key; nil: none
	Logger *slog.Logger // nil: no log
}

// Source provides the tokens of a node, one for each purpose.
type Source struct {
	o    Options
	turn chan struct{} // held while the controller is asked

	mu      sync.Mutex                  // guards the fields below
	tokens  map[api.TokenPurpose]*token // purpose -> what is known about it
	none    time.Time                   // when the controller last reported that it issues no tokens
	away    time.Time                   // when the controller was last unavailable
	refused map[string]time.Time        // address -> since when it refuses a new token
	told    time.Time                   // when a refusal was last logged
}

// token is the token for one purpose. The mu of its Source guards it.
type token struct {
	pass    string        // "": none
	before  string        // the previous one
	since   time.Time     // when the controller issued it, or reported that there is none
	life    time.Duration // from then on; 0: unknown
	tried   time.Time     // when the controller was last asked
	failed  error         // the error of that request
	wanted  bool          // a registry has refused the last token
	certain bool          // the controller was asked after such a refusal
}

var _ Credentials = (*Source)(nil)

// New returns a source. It does not request a token yet.
func New(o Options) *Source {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, turn: make(chan struct{},
		1), tokens: map[api.TokenPurpose]*token{}, refused: map[string]time.Time{}}
}

const (
	header = "Authorization"
	scheme = "Bearer "
)

// Authorize implements Credentials. It fails only when a registry needs a token while the
// controller is unavailable, or when the request is not part of an order of the node.
func (h *Source) Authorize(r *http.Request, address string) error {
	text, err := h.current(r.Context(), purposeOf(r.Context()))
	switch {
	case h.o.Own != nil && (text == "" && err == nil || h.usesNodeKey(address)):
		return h.o.Own.Authorize(r, address)
	case farm.CodeOf(err) == farm.CodeForbidden:
		return err
	case err != nil:
		return farm.Unavailable(err, "Getting a registry token from the controller failed")
	case text != "":
		r.Header.Set(header, scheme+text)
	}
	return nil
}

// current returns the token to use now, or "" for none. It returns an error only when a registry
// has refused the last token, or the controller refuses to issue one.
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
	if text, known, err := h.have(purpose, time.Now()); known { // another caller has asked in the meantime
		return text, err
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := h.o.Ask(asked, purpose)
	h.record(purpose, answer, err, time.Now())
	text, _, err := h.have(purpose, time.Now())
	return text, err
}

// tokenLocked returns the entry for a purpose. It removes entries when there are too many.
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
		clear(h.tokens) // they will be requested again
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
	case t.pass == "" && !t.wanted && (isWithin(h.none, noneLife, now) || isWithin(h.away, askAgain, now)):
		return "", true, nil // it was just requested for another purpose
	}
	return "", recent, nil
}

// isWithin reports whether an event happened less than d ago.
func isWithin(at time.Time, d time.Duration, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) < d
}

// record records the controller's response.
func (h *Source) record(purpose api.TokenPurpose, answer api.RegistryTokenResponse, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	t.tried = now
	if farm.CodeOf(err) == farm.CodeNotFound { // a controller without tokens
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
	h.logRefusal(address, shown != "", time.Now())
	return false
}

// renew is Renew for requests with a token or without credentials; mine is false for others.
func (h *Source) renew(purpose api.TokenPurpose, shown, address string, now time.Time) (again, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	if t.pass != "" && now.Sub(t.since) >= t.life {
		t.drop()
	}
	fresh := now.Sub(t.since) < askAgain
	switch {
	case shown == t.pass && fresh && (t.certain || h.o.Own != nil): // or "": the controller reported that it has none
		h.logRefusal(address, shown != "", now)
		if shown != "" {
			h.refuse(address, now)
		}
		return h.o.Own != nil && shown != "", true
	case shown == "" && t.pass != "", shown != "" && shown == t.before:
		return true, true // a newer one exists
	case shown == t.pass:
		t.drop()
		t.wanted = true
		if fresh { // the last response may be from before a restart of the controller
			t.tried = time.Time{}
		}
		return true, true
	}
	return false, false
}

// drop removes the token.
func (t *token) drop() {
	if t.pass != "" {
		t.before = t.pass
	}
	t.pass, t.life = "", 0
}

// refuse records that a registry accepts no token of this controller.
func (h *Source) refuse(address string, now time.Time) {
	if len(h.refused) >= maxRefused {
		clear(h.refused)
	}
	h.refused[address] = now
}

// usesNodeKey reports whether the node's own key is used for a registry.
func (h *Source) usesNodeKey(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, is := h.refused[address]
	return is && time.Since(since) < ownLife
}

// logRefusal logs, at most once in tellEvery, that a registry refuses the node's credentials.
func (h *Source) logRefusal(address string, shown bool, now time.Time) {
	if now.Sub(h.told) < tellEvery {
		return
	}
	h.told = now
	h.o.Logger.Warn(
		"registry rejected the token of this node: check that controller and registry have the same root token",
		"registry", address, "token", shown, "key", h.o.Own != nil)
}
