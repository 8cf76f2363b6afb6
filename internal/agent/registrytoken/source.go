// Package registrytoken authenticates a node to the registry of its cloud: with the registry token that
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
	// RequestToken requests a token from the controller.
	RequestToken func(ctx context.Context, purpose api.TokenPurpose) (api.RegistryTokenResponse, error)
	NodeKey      Credentials  // the node's API key; nil: none
	Logger       *slog.Logger // nil: no log
}

// Source provides the tokens of a node, one for each purpose.
type Source struct {
	opts        Options
	requestSlot chan struct{} // held while the controller is asked

	mu               sync.Mutex                  // guards the fields below
	tokens           map[api.TokenPurpose]*token // purpose -> what is known about it
	noTokensAt       time.Time                   // when the controller last reported that it issues no tokens
	controllerDownAt time.Time                   // when the controller was last unavailable
	refusedSince     map[string]time.Time        // address -> since when it refuses a new token
	refusalLoggedAt  time.Time                   // when a refusal was last logged
}

// token is the token for one purpose. The mu of its Source guards it.
type token struct {
	value             string        // "": none
	previousValue     string        // the previous one
	issuedAt          time.Time     // when the controller issued it, or reported that there is none
	lifetime          time.Duration // from then on; 0: unknown
	requestedAt       time.Time     // when the controller was last asked
	requestErr        error         // the error of that request
	refusedByRegistry bool          // a registry has refused the last token
	askedSinceRefusal bool          // the controller was asked after such a refusal
}

var _ Credentials = (*Source)(nil)

// New returns a source. It does not request a token yet.
func New(o Options) *Source {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{opts: o, requestSlot: make(chan struct{},
		1), tokens: map[api.TokenPurpose]*token{}, refusedSince: map[string]time.Time{}}
}

const (
	header = "Authorization"
	scheme = "Bearer "
)

// Authorize implements Credentials. It fails only when a registry needs a token while the
// controller is unavailable, or when the request is not part of an order of the node.
func (h *Source) Authorize(r *http.Request, address string) error {
	text, err := h.currentToken(r.Context(), purposeOf(r.Context()))
	switch {
	case h.opts.NodeKey != nil && (text == "" && err == nil || h.usesNodeKey(address)):
		return h.opts.NodeKey.Authorize(r, address)
	case farm.CodeOf(err) == farm.CodeForbidden:
		return err
	case err != nil:
		return farm.Unavailable(err, "Getting a registry token from the controller failed")
	case text != "":
		r.Header.Set(header, scheme+text)
	}
	return nil
}

// currentToken returns the token to use now, or "" for none. It returns an error only when a registry
// has refused the last token, or the controller refuses to issue one.
func (h *Source) currentToken(ctx context.Context, purpose api.TokenPurpose) (string, error) {
	if text, known, err := h.knownToken(purpose, time.Now()); known {
		return text, err
	}
	select {
	case h.requestSlot <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-h.requestSlot }()
	if text, known, err := h.knownToken(purpose, time.Now()); known { // another caller has asked in the meantime
		return text, err
	}
	asked, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := h.opts.RequestToken(asked, purpose)
	h.recordResponse(purpose, answer, err, time.Now())
	text, _, err := h.knownToken(purpose, time.Now())
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
			return now.Sub(old.issuedAt) >= old.lifetime && now.Sub(old.requestedAt) >= askAgain
		})
	}
	if len(h.tokens) >= maxTokens {
		clear(h.tokens) // they will be requested again
	}
	t = &token{}
	h.tokens[purpose] = t
	return t
}

// knownToken returns what is known without asking; known is false when it is time to ask.
func (h *Source) knownToken(purpose api.TokenPurpose, now time.Time) (text string, known bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	age := now.Sub(t.issuedAt)
	recent := !t.requestedAt.IsZero() && now.Sub(t.requestedAt) < askAgain
	switch {
	case t.value != "" && age < t.lifetime && (age < t.lifetime/2 || recent):
		return t.value, true, nil
	case t.value == "" && age < t.lifetime:
		return "", true, nil
	case recent && (t.refusedByRegistry || farm.CodeOf(t.requestErr) == farm.CodeForbidden):
		return "", true, t.requestErr
	case t.value == "" && !t.refusedByRegistry &&
		(isWithin(h.noTokensAt, noneLife, now) || isWithin(h.controllerDownAt, askAgain, now)):
		return "", true, nil // it was just requested for another purpose
	}
	return "", recent, nil
}

// isWithin reports whether an event happened less than d ago.
func isWithin(at time.Time, d time.Duration, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) < d
}

// recordResponse records the controller's response.
func (h *Source) recordResponse(purpose api.TokenPurpose, answer api.RegistryTokenResponse, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	t.requestedAt = now
	if farm.CodeOf(err) == farm.CodeNotFound { // a controller without tokens
		answer, err = api.RegistryTokenResponse{}, nil
	}
	if t.requestErr = err; err != nil {
		if farm.CodeOf(err) != farm.CodeForbidden {
			h.controllerDownAt = now
		}
		return
	}
	h.controllerDownAt, h.noTokensAt = time.Time{}, time.Time{}
	t.askedSinceRefusal, t.refusedByRegistry, t.issuedAt, t.lifetime = t.refusedByRegistry, false, now, noneLife
	if answer.Pass != t.value {
		t.previousValue = t.value
	}
	if t.value = answer.Pass; t.value != "" {
		t.lifetime = time.Duration(answer.Life) * time.Second
	} else {
		h.noTokensAt = now
	}
}

// Renew implements Credentials.
func (h *Source) Renew(r *http.Request, address string) bool {
	shown, isBearer := strings.CutPrefix(r.Header.Get(header), scheme)
	if again, mine := h.renewToken(purposeOf(r.Context()), shown, address, time.Now()); mine {
		return again
	}
	if isBearer && h.opts.NodeKey != nil && h.opts.NodeKey.Renew(r, address) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.refusedSince, address)
	h.logRefusal(address, shown != "", time.Now())
	return false
}

// renewToken is Renew for requests with a token or without credentials; mine is false for others.
func (h *Source) renewToken(purpose api.TokenPurpose, shown, address string, now time.Time) (again, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokenLocked(purpose, now)
	if t.value != "" && now.Sub(t.issuedAt) >= t.lifetime {
		t.clear()
	}
	fresh := now.Sub(t.issuedAt) < askAgain
	switch {
	// or "": the controller reported that it has none
	case shown == t.value && fresh && (t.askedSinceRefusal || h.opts.NodeKey != nil):
		h.logRefusal(address, shown != "", now)
		if shown != "" {
			h.markRefused(address, now)
		}
		return h.opts.NodeKey != nil && shown != "", true
	case shown == "" && t.value != "", shown != "" && shown == t.previousValue:
		return true, true // a newer one exists
	case shown == t.value:
		t.clear()
		t.refusedByRegistry = true
		if fresh { // the last response may be from before a restart of the controller
			t.requestedAt = time.Time{}
		}
		return true, true
	}
	return false, false
}

// clear removes the token.
func (t *token) clear() {
	if t.value != "" {
		t.previousValue = t.value
	}
	t.value, t.lifetime = "", 0
}

// markRefused records that a registry accepts no token of this controller.
func (h *Source) markRefused(address string, now time.Time) {
	if len(h.refusedSince) >= maxRefused {
		clear(h.refusedSince)
	}
	h.refusedSince[address] = now
}

// usesNodeKey reports whether the node's own key is used for a registry.
func (h *Source) usesNodeKey(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, is := h.refusedSince[address]
	return is && time.Since(since) < ownLife
}

// logRefusal logs, at most once in tellEvery, that a registry refuses the node's credentials.
func (h *Source) logRefusal(address string, shown bool, now time.Time) {
	if now.Sub(h.refusalLoggedAt) < tellEvery {
		return
	}
	h.refusalLoggedAt = now
	h.opts.Logger.Warn(
		"registry rejected the token of this node: check that controller and registry have the same root token",
		"registry", address, "token", shown, "key", h.opts.NodeKey != nil)
}
