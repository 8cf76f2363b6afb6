// Package servicetest is a small service with API keys, for tests of its clients. It has the authentication
// routes and the guard of the real services, with in-memory stores, in front of a handler of the test.
//
// It is not for production, and nothing in it answers differently from a real service.
//
// Invariant: callers without credentials reach only what real services leave open.
package servicetest

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
)

// Root is the root token of every service here.
const Root = "the root token of the tests"

// Options configures the service. The zero value is a controller without a handler.
type Options struct {
	Service farm.Service  // "": the controller
	TTL     time.Duration // of sessions; 0: the default
	Next    http.Handler  // handler after the guard; nil: an empty list is returned
	// May authorizes callers of Next; nil: all may.
	May         func(who auth.Identity, r *http.Request) error
	Certificate func(r *http.Request) (name string, groups []string, ok bool, err error)
	JWT         string // an accepted token; "": none
}

// Service is the service. It serves requests and counts them.
type Service struct {
	Keys   *auth.APIKeys
	Signer *auth.Signer
	Grants *auth.GrantTable

	Hands, Shakes, Refused, Served atomic.Int64

	o       Options
	handler http.Handler
}

var _ http.Handler = (*Service)(nil)

// New makes a service without keys.
func New(o Options) *Service {
	if o.Service == "" {
		o.Service = farm.ServiceController
	}
	s := &Service{
		Keys: auth.NewAPIKeys(auth.NewKeyTable(nil, nil)), Signer: auth.NewSigner(auth.NewKeyRing(time.Now())),
		Grants: auth.NewGrantTable(auth.Grants{}, nil), o: o,
	}
	root, err := auth.NewRootToken(Root)
	if err != nil {
		panic(err)
	}
	who := &auth.Authenticator{Root: root, Sessions: auth.NewSessions(s.Keys, s.Signer,
		o.TTL), Certificate: o.Certificate}
	if o.JWT != "" {
		who.JWT = s.jwt
	}
	log := slog.New(slog.DiscardHandler)
	guard, err := rest.NewGuard(rest.GuardOptions{
		Identifier: who,
		Authorizer: auth.NewAuthorizer(
			auth.Policy{Service: o.Service, Tier: farm.TierEnterprisePlus, Authorization: true},
			s.Grants), Logger: log,
	})
	if err != nil {
		panic(err)
	}
	routes := authrest.Routes(authrest.Options{
		Service: o.Service, Keys: s.Keys, Handshake: auth.NewTAP(who.Sessions, &auth.MemoryNonces{}), Grants: s.Grants,
		ResourcesManaged: true,
	})
	s.handler = guard.Handler(append(routes,
		rest.Route{Pattern: "/", Permission: rest.AnyCredential, HandleRaw: s.behind}), log)
	return s
}

// Add creates a key that is valid for an hour, and returns its private half.
func (s *Service) Add(id string, groups ...string) (private string, err error) {
	secret, err := s.Keys.Create(context.Background(), auth.NewAPIKey{ID: id, TTL: 3600, Groups: groups})
	return secret.Reveal(), err
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case api.PathHand:
		s.Hands.Add(1)
	case api.PathShake:
		s.Shakes.Add(1)
	}
	s.handler.ServeHTTP(&refusals{w, s}, r)
}

// refusals counts answers that refuse credentials.
type refusals struct {
	http.ResponseWriter
	s *Service
}

// WriteHeader implements http.ResponseWriter.
func (w *refusals) WriteHeader(code int) {
	if code == http.StatusUnauthorized {
		w.s.Refused.Add(1)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the underlying writer for http.ResponseController.
func (w *refusals) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// behind passes an authenticated request to the handler.
func (s *Service) behind(w http.ResponseWriter, r *http.Request) error {
	if s.o.May != nil {
		if err := s.o.May(rest.CallerOf(r.Context()).Identity, r); err != nil {
			return err
		}
	}
	s.Served.Add(1)
	if s.o.Next == nil {
		return rest.WriteResponse(w, r, []string{})
	}
	s.o.Next.ServeHTTP(w, r)
	return nil
}

func (s *Service) jwt(_ context.Context, token string) (string, []string, error) {
	if token != s.o.JWT {
		return "", nil, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	return "job", nil, nil
}
