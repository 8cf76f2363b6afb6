package rest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestGuessesAreLimited: root tokens are, wrong and right ones, for seconds; expired sessions never.
func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		session := g.key(t)
		time.Sleep(6 * time.Minute)
		count := map[int]int{}
		for i := range 100 {
			count[g.ask("GET", "/vm", "Authorization", rootBasic("wrong")).Code]++
			want := 200
			if i >= 29 {
				want = 429 // or the response would reveal which token is right
			}
			if a := g.ask("GET", "/vm", "Authorization", rootBasic(rootToken)); a.Code != want {
				t.Fatalf("the right token, after %d wrong ones: %d", i+1, a.Code)
			}
			if a := g.ask("GET", "/vm", "Authorization", session); a.Code != 401 {
				t.Fatal("an expired session is told to wait instead of shaking hands:", a.Code)
			}
			if a := g.ask("GET", "/vm"); a.Code != 401 {
				t.Fatal(a.Code)
			}
		}
		if count[401] != 30 || count[429] != 70 {
			t.Error(count)
		}
		for _, path := range []string{"/pkg/none", "/pkg/token"} { // where nodes authenticate in the handler
			if a := g.ask("GET", path, "Authorization", rootBasic("wrong")); a.Code != 429 {
				t.Errorf("%s: %d", path, a.Code)
			}
		}
		if a := g.ask("GET", "/pkg/none", "Authorization", "Bearer x"); a.Code != 401 {
			t.Error(a.Code)
		}
		a := g.ask("GET", "/vm", "Authorization", rootBasic("wrong"))
		if _, message, _ := a.envelope(t); message != "Too many failed attempts; try again later" ||
			a.Header().Get("Retry-After") != "2" {
			t.Error(message, a.Header())
		}
		time.Sleep(2 * time.Second)
		if a := g.ask("GET", "/vm", "Authorization", rootBasic(rootToken)); a.Code != 200 {
			t.Error("the root user is locked out for longer than Retry-After says:", a.Code)
		}
		time.Sleep(time.Hour)
		count = map[int]int{}
		for range 100 {
			count[g.ask("GET", "/pkg/none", "Authorization", rootBasic("wrong")).Code]++
			if a := g.ask("GET", "/pkg/token", "Authorization", rootBasic("a node's")); a.Code == 401 {
				t.Fatal(a.Code)
			}
		}
		if count[401] != 30 || count[429] != 70 {
			t.Error("at a route of nodes:", count)
		}
	})
}

// TestGuessesThatFailOtherwise: a wrong root token counts also if the request fails for another reason, which
// would distinguish it from the right one.
func TestGuessesThatFailOtherwise(t *testing.T) {
	for name, body := range map[string]string{
		"too large": strings.Repeat("x", maxAnonymousBody+1), "not what is asked for": "{}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				join := g.guard.Handler(
					[]Route{{Pattern: "POST /join", Permission: NodeOrCaller, Handle: func(*Request) (any, error) {
						return nil, farm.Errorf(farm.CodeInvalid, "No")
					}}}, slog.New(slog.DiscardHandler))
				codes := map[int]int{}
				for range 100 {
					r := httptest.NewRequestWithContext(t.Context(), "POST", "/join", strings.NewReader(body))
					r.Header.Set("Authorization", rootBasic("wrong"))
					r.RemoteAddr = "192.0.2.7:4711"
					a := httptest.NewRecorder()
					join.ServeHTTP(a, r)
					codes[a.Code]++
				}
				if codes[429] != 70 {
					t.Errorf("answers: %v", codes)
				}
			})
		})
	}
}

// TestGuessesOfHandlers: comparisons in handlers count once for the limit of the root token.
func TestGuessesOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var compared int
		handler := func(own *auth.GuessLimiter) HandlerFunc {
			return func(r *Request) (any, error) {
				return nil, LimitedCompare(r.Request, own, func() error {
					compared++
					return farm.Errorf(farm.CodeUnauthenticated, "No")
				})
			}
		}
		g := newGate(t)
		open := (*Guard)(nil).Handler([]Route{
			{Pattern: "POST /join", Permission: NodeOrCaller, Handle: handler(&auth.GuessLimiter{})},
		}, slog.New(slog.DiscardHandler))
		shut := g.guard.Handler([]Route{{Pattern: "POST /join", Permission: NodeOrCaller, Handle: handler(nil)}},
			slog.New(slog.DiscardHandler))
		for name, h := range map[string]http.Handler{"without a guard": open, "with one": shut} {
			compared = 0
			for range 100 {
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/join", strings.NewReader("{}"))
				r.Header.Set("Authorization", rootBasic("wrong"))
				r.RemoteAddr = "192.0.2.7:4711"
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if compared != 30 {
				t.Errorf("%s: %d were compared", name, compared)
			}
		}
		if a := g.ask("GET", "/vm", "Authorization", rootBasic(rootToken)); a.Code != 429 {
			t.Error("the root token has a limit of its own:", a.Code)
		}
	})
}
