package registrytoken

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const at = "http://registry.example:8089"

// scene is a node between a controller and a registry.
type scene struct {
	t     *testing.T
	h     *Source
	log   bytes.Buffer
	mu    sync.Mutex
	asked int
	gives func(n int) (api.RegistryTokenResponse, error)
	takes func(shown string) bool
	seen  []string
}

func newScene(t *testing.T, own Credentials) *scene {
	t.Helper()
	s := &scene{t: t}
	s.gives = func(n int) (api.RegistryTokenResponse, error) {
		return api.RegistryTokenResponse{Pass: fmt.Sprintf("pass %d", n), Life: 600}, nil
	}
	s.takes = func(shown string) bool { return strings.HasPrefix(shown, "Bearer pass") }
	s.h = New(Options{
		NodeKey: own, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		RequestToken: func(context.Context, api.TokenPurpose) (api.RegistryTokenResponse, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			return s.gives(s.asked)
		},
	})
	return s
}

// call sends a request to the registry as package transfer does, and returns the credential that
// was sent last.
func (s *scene) call() (shown string, taken bool, err error) {
	s.t.Helper()
	for try := 0; ; try++ {
		r, err := http.NewRequestWithContext(s.t.Context(), "GET", at, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.h.Authorize(r, at); err != nil {
			return "", false, err
		}
		shown = r.Header.Get("Authorization")
		s.seen = append(s.seen, shown)
		if s.takes(shown) {
			return shown, true, nil
		}
		if try > 0 || !s.h.Renew(r, at) {
			return shown, false, nil
		}
	}
}

func (s *scene) want(shown string, taken bool) {
	s.t.Helper()
	got, ok, err := s.call()
	if got != shown || ok != taken || err != nil {
		s.t.Errorf("shown %q, taken %v, %v; want %q, %v", got, ok, err, shown, taken)
	}
}

// key is the node's API key.
type key struct{ renewed int }

func (*key) Authorize(r *http.Request, _ string) error {
	r.Header.Set("Authorization", "Bearer key")
	return nil
}

func (k *key) Renew(*http.Request, string) bool {
	k.renewed++
	return k.renewed == 1
}

func TestRegistryTokenIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want("Bearer pass 1", true)
		time.Sleep(5*time.Minute - time.Second)
		s.want("Bearer pass 1", true)
		time.Sleep(time.Second)
		s.want("Bearer pass 2", true)
		time.Sleep(time.Hour)
		s.want("Bearer pass 3", true)
		if s.asked != 3 {
			t.Errorf("asked %d times", s.asked)
		}
	})
}

// TestAControllerThatIsAway: the existing token is used as long as it is valid.
func TestAControllerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want("Bearer pass 1", true)
		s.gives = func(int) (api.RegistryTokenResponse, error) {
			return api.RegistryTokenResponse{}, farm.Unavailable(nil, "away")
		}
		s.takes = func(shown string) bool { return shown == "Bearer pass 1" }
		for range 9 {
			time.Sleep(time.Minute)
			s.want("Bearer pass 1", true)
		}
		time.Sleep(time.Minute)
		if _, _, err := s.call(); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("a later attempt would do: %v", err)
		}
		asked := s.asked
		if _, _, err := s.call(); farm.CodeOf(err) != farm.CodeUnavailable || s.asked != asked {
			t.Errorf("%v; the controller was asked %d times more at once", err, s.asked-asked)
		}
		s.gives = func(int) (api.RegistryTokenResponse, error) {
			return api.RegistryTokenResponse{Pass: "pass 1", Life: 600}, nil
		}
		time.Sleep(askAgain)
		s.want("Bearer pass 1", true)
	})
}

// TestNothingIsNeeded: a cloud without authentication works with and without its controller,
// whether that issues tokens or not.
func TestNothingIsNeeded(t *testing.T) {
	for name, err := range map[string]error{
		"no passes": nil, "an old controller": farm.Errorf(farm.CodeNotFound, "No such route"),
		"away": errors.New("away"),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, nil)
			s.gives = func(int) (api.RegistryTokenResponse, error) { return api.RegistryTokenResponse{}, err }
			s.takes = func(shown string) bool { return shown == "" }
			for range 100 {
				s.want("", true)
			}
			if s.asked != 1 {
				t.Errorf("%s: asked %d times", name, s.asked)
			}
			time.Sleep(noneLife)
			s.want("", true)
			if s.asked != 2 {
				t.Errorf("%s: asked %d times later", name, s.asked)
			}
		})
	}
}

// TestAnOldController: the controller issues no tokens: a refused request stays refused, and a
// retry does not help.
func TestAnOldController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.gives = func(int) (api.RegistryTokenResponse, error) {
			return api.RegistryTokenResponse{}, farm.Errorf(farm.CodeNotFound, "No such route")
		}
		s.want("", false)
		time.Sleep(askAgain)
		s.want("", false)
	})
}

// TestAuthenticationIsEnabled: a request is immediately repeated with a token when a registry
// begins to refuse anonymous requests.
func TestAuthenticationIsEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		gives := s.gives
		s.gives = func(int) (api.RegistryTokenResponse, error) { return api.RegistryTokenResponse{}, nil }
		takes := s.takes
		s.takes = func(shown string) bool { return shown == "" }
		s.want("", true)
		s.gives, s.takes = gives, takes
		time.Sleep(askAgain)
		s.want("Bearer pass 2", true)
		if fmt.Sprint(s.seen) != "[  Bearer pass 2]" {
			t.Errorf("%q", s.seen)
		}
	})
}

// TestAuthenticationIsEnabledImmediately: an earlier response of the controller does not fail later
// requests, and a controller without tokens is asked only once more.
func TestAuthenticationIsEnabledImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		gives, takes := s.gives, s.takes
		s.gives = func(int) (api.RegistryTokenResponse, error) { return api.RegistryTokenResponse{}, nil }
		s.takes = func(shown string) bool { return shown == "" }
		s.want("", true)
		s.takes = takes
		for range 3 {
			s.want("", false)
		}
		if s.asked != 2 {
			t.Errorf("asked %d times", s.asked)
		}
		time.Sleep(askAgain)
		s.gives = func(int) (api.RegistryTokenResponse, error) {
			return api.RegistryTokenResponse{}, farm.Unavailable(nil, "away")
		}
		if _, _, err := s.call(); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("a later attempt would do: %v", err)
		}

		s = newScene(t, nil)
		s.gives = func(int) (api.RegistryTokenResponse, error) { return api.RegistryTokenResponse{}, nil }
		s.takes = func(shown string) bool { return shown == "" }
		s.want("", true)
		s.gives, s.takes = gives, takes
		s.want("Bearer pass 2", true)
	})
}

// TestRefusedToken: another token is requested, and when that is refused, too, it is logged once.
func TestRefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want("Bearer pass 1", true)
		s.takes = func(shown string) bool { return shown == "Bearer pass 2" } // the signing keys have changed
		time.Sleep(time.Minute)
		s.want("Bearer pass 2", true)
		s.takes = func(string) bool { return false }
		time.Sleep(time.Minute)
		for range 5 {
			if _, taken, err := s.call(); taken || err != nil {
				t.Errorf("%v, %v", taken, err)
			}
		}
		if n := strings.Count(s.log.String(), "registry rejected the token of this node"); n != 1 {
			t.Errorf("said %d times: %s", n, s.log.String())
		}
		if strings.Contains(s.log.String(), "pass 3") || s.asked > 4 {
			t.Errorf("asked %d times; %s", s.asked, s.log.String())
		}
	})
}

// TestTheKeyOfTheNode: the key is used where the controller issues no tokens, and where the
// registry accepts none of them.
func TestTheKeyOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &key{}
		s := newScene(t, k)
		s.gives = func(int) (api.RegistryTokenResponse, error) { return api.RegistryTokenResponse{}, nil }
		s.takes = func(shown string) bool { return shown == "Bearer key" }
		s.want("Bearer key", true)
		s.takes = func(string) bool { return k.renewed == 1 } // its session has expired
		s.want("Bearer key", true)

		s = newScene(t, &key{})
		s.takes = func(shown string) bool { return shown == "Bearer key" }
		s.want("Bearer key", true)
		s.want("Bearer key", true)
		if s.asked != 1 || s.seen[0] != "Bearer pass 1" || len(s.seen) != 3 {
			t.Errorf("asked %d times; %q", s.asked, s.seen)
		}
		time.Sleep(ownLife)
		s.takes = func(shown string) bool { return strings.HasPrefix(shown, "Bearer pass") }
		s.want("Bearer pass 2", true)
	})
}

// TestManyAskOnce: concurrent callers share one request for a token, and a canceled caller does not
// wait.
func TestManyAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow := newScene(t, nil), make(chan struct{})
		gives := s.gives
		s.gives = func(n int) (api.RegistryTokenResponse, error) {
			<-slow
			return gives(n)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				r, _ := http.NewRequestWithContext(t.Context(), "GET", at, nil)
				if err := s.h.Authorize(r, at); err != nil || r.Header.Get("Authorization") != "Bearer pass 1" {
					t.Errorf("%v, %v", r.Header, err)
				}
			})
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r, _ := http.NewRequestWithContext(gone, "GET", at, nil)
		if err := s.h.Authorize(r, at); err == nil {
			t.Error("who has gone waits")
		}
		close(slow)
		all.Wait()
		if s.asked != 1 {
			t.Errorf("asked %d times", s.asked)
		}
	})
}
