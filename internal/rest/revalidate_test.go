package rest

import (
	"io"
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

// TestWhoFollowsIsCutOff: what follows something ends a moment after its caller may not have it
// any more, and continues over the end of a session.
func TestWhoFollowsIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		header func(g *gate) string
		change func(g *gate) error
		goesOn bool
	}{
		"nothing changes": {change: func(*gate) error { return nil }, goesOn: true},
		"the session ends": {change: func(*gate) error {
			time.Sleep(2 * auth.DefaultSessionTTL)
			return nil
		}, goesOn: true},
		"the key is deleted": {change: func(g *gate) error { return g.keys.Delete(t.Context(), "ci") }},
		"deleted afterwards": {change: func(g *gate) error {
			time.Sleep(2 * auth.DefaultSessionTTL)
			return g.keys.Delete(t.Context(), "ci")
		}},
		"the key ends": {change: func(*gate) error { time.Sleep(time.Hour); return nil }},
		"other groups": {change: func(g *gate) error {
			return g.keys.Update(t.Context(), "ci", auth.APIKeyChange{Groups: &[]string{"x"}})
		}},
		"groups of an ended one": {change: func(g *gate) error {
			time.Sleep(2 * auth.DefaultSessionTTL)
			return g.keys.Update(t.Context(), "ci", auth.APIKeyChange{Groups: &[]string{"x"}})
		}},
		"the permission is taken": {change: func(g *gate) error {
			return g.grants.Change(t.Context(),
				func(all auth.Grants) (auth.Grants, error) { return all.DeleteGroup("dev") })
		}},
		"root": {header: func(*gate) string { return rootBasic(rootToken) }, goesOn: true, change: func(g *gate) error {
			return g.grants.Change(t.Context(),
				func(all auth.Grants) (auth.Grants, error) { return all.DeleteGroup("dev") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				ended, leave := make(chan struct{}), make(chan struct{})
				h := g.guard.Handler([]Route{{
					Pattern: "GET /follow", Permission: "list_vms", Streams: true,
					HandleRaw: func(_ http.ResponseWriter, r *http.Request) error {
						defer close(ended)
						select {
						case <-r.Context().Done():
						case <-leave:
						}
						return nil
					},
				}}, slog.New(slog.DiscardHandler))
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/follow", nil)
				r.Header.Set("Authorization", g.key(t))
				if c.header != nil {
					r.Header.Set("Authorization", c.header(g))
				}
				go h.ServeHTTP(httptest.NewRecorder(), r)
				synctest.Wait()
				must(t, c.change(g))
				time.Sleep(revalidateInterval)
				synctest.Wait()
				select {
				case <-ended:
					if c.goesOn {
						t.Error("it was cut off")
					}
				default:
					if !c.goesOn {
						t.Error("it continues")
					}
				}
				close(leave)
				synctest.Wait() // and nothing is left of it
			})
		})
	}
}

// TestLargeBodiesNeedAuthentication: large bodies are read only from authenticated callers.
func TestLargeBodiesNeedAuthentication(t *testing.T) {
	g := newGate(t)
	do := func(*Request) (any, error) { return "did", nil }
	vouch := func(r *http.Request) error {
		if r.Header.Get("Authorization") == "Bearer node" {
			return nil
		}
		return farm.Errorf(farm.CodeUnauthenticated, "no node")
	}
	h := g.guard.Handler([]Route{
		{Pattern: "POST /open", Permission: NoCredential, Handle: do},
		{Pattern: "POST /typed", Permission: NoCredential, DecodesBody: true, Handle: do},
		{Pattern: "POST /join", Permission: NodeOrCaller, DecodesBody: true, Handle: do},
		{Pattern: "POST /poll", Permission: NodeOnly, DecodesBody: true, Frequent: true, VerifyNode: vouch, Handle: do},
		{Pattern: "POST /vm", Permission: "list_vms", Handle: do},
	}, slog.New(slog.DiscardHandler))
	key := g.key(t)
	for _, c := range []struct {
		path, header string
		size         int
		want         int
	}{
		{"/open", "", maxAnonymousBody, 200},
		{"/open", "", maxAnonymousBody + 1, 413},
		{"/typed", "", maxAnonymousBody + 1, 413},
		{"/join", "", maxAnonymousBody + 1, 413},
		{"/join", key, maxAnonymousBody + 1, 200},
		{"/poll", "Bearer node", maxAnonymousBody + 1, 200},
		{"/poll", "Bearer x", maxAnonymousBody + 1, 401},
		{"/poll", "Bearer x", maxAnonymousBody, 200}, // the handler authenticates it
		{"/vm", key, maxAnonymousBody + 1, 200},
		{"/vm", "", maxAnonymousBody + 1, 401},
	} {
		for _, announced := range []bool{true, false} {
			body := &counted{Reader: strings.NewReader("{" + strings.Repeat(" ", c.size-2) + "}")}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, body)
			r.ContentLength = -1
			if announced {
				r.ContentLength = int64(c.size)
			}
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			a := httptest.NewRecorder()
			h.ServeHTTP(a, r)
			want := c.want
			if !announced && c.path == "/poll" && c.header == "Bearer x" {
				want = 401
			}
			if a.Code != want || want != 200 && body.read > maxAnonymousBody+1 || want == 401 && body.read > 0 {
				t.Errorf("%s, %.10s, %d bytes, announced %v: %d after %d bytes", c.path, c.header, c.size, announced,
					a.Code, body.read)
			}
		}
	}
}

// counted counts the bytes that are read of it.
type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read += n
	return n, err
}
