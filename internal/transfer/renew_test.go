package transfer_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/internal/transfer"
)

// fading lets every credential be used a few times only.
type fading struct {
	mu   sync.Mutex
	used map[string]int // credential -> times
	uses int

	now     atomic.Int64 // the credential that the client has
	refused atomic.Int64
}

func (f *fading) authorize(r *http.Request) error {
	r.Header.Set("Authorization", fmt.Sprint(f.now.Load()))
	return nil
}

// renew replaces a refused credential.
func (f *fading) renew(r *http.Request) bool {
	var had int64
	_, err := fmt.Sscan(r.Header.Get("Authorization"), &had)
	f.now.CompareAndSwap(had, had+1)
	return err == nil
}

func (f *fading) serve(w http.ResponseWriter, r *http.Request, h http.Handler) {
	f.mu.Lock()
	shown := r.Header.Get("Authorization")
	f.used[shown]++
	good := shown != "" && f.used[shown] <= f.uses
	f.mu.Unlock()
	if !good {
		f.refused.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"status":"FAIL","message":"Authentication Required"}`)
		return
	}
	h.ServeHTTP(w, r)
}

// TestCredentialsThatFade: a push, a pull and a call that is made once continue with new credentials when the
// old ones are stale.
func TestCredentialsThatFade(t *testing.T) {
	s := serve(t, t.TempDir())
	f := &fading{used: map[string]int{}, uses: 4}
	disturb := f.serve
	s.disturb.Store(&disturb)
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Authorize: f.authorize, RenewCredentials: f.renew})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	files := threeFiles(t)
	for _, tag := range []string{"v1", "v2"} {
		mustPush(t, c, pushOptions(tag, files...))
	}
	if _, err := c.Pull(t.Context(),
		transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	before := f.refused.Load()
	f.mu.Lock()
	f.uses = 1 // each call meets stale credentials
	f.mu.Unlock()
	if _, err := c.ListTemplates(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Revert(t.Context(), transfer.VersionRef{ID: templateID, Tag: "v2"}); err != nil {
		t.Fatal(err)
	}
	if detail, err := c.TemplateDetail(t.Context(), templateID); err != nil || len(detail.Versions) != 1 {
		t.Errorf("%d versions, %v", len(detail.Versions), err)
	}
	if before < 2 || f.refused.Load() < before+2 {
		t.Errorf("%d and %d refusals: nothing was tried", before, f.refused.Load())
	}
}

// TestRedirectsLeadCredentialsNowhere: the target of a redirect gets them only if it is the registry itself.
func TestRedirectsLeadCredentialsNowhere(t *testing.T) {
	var here, there atomic.Value
	list := func(seen *atomic.Value) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r.Header.Get("Authorization"))
			_, _ = io.WriteString(w, `{"status":"OK","body":[]}`)
		}
	}
	moon := httptest.NewServer(list(&there))
	defer moon.Close()
	mux := http.NewServeMux()
	mux.Handle("/away/", http.RedirectHandler(moon.URL, http.StatusFound))
	mux.Handle("/own/", http.RedirectHandler("/list", http.StatusFound))
	mux.Handle("/round/", http.RedirectHandler("/round/again", http.StatusFound))
	mux.Handle("/list", list(&here))
	s := httptest.NewServer(mux)
	defer s.Close()
	for path, good := range map[string]bool{"/away": true, "/own": true, "/round": false} {
		c, err := transfer.New(transfer.Options{BaseURL: s.URL +
			path, MaxAttempts: 1, Authorize: func(r *http.Request) error {
			r.SetBasicAuth("root", "hidden")
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListTemplates(t.Context()); (err == nil) != good {
			t.Errorf("%s: %v", path, err)
		}
		c.Close()
	}
	if there.Load() != "" || here.Load() == "" {
		t.Errorf("elsewhere %q was shown, at the registry %q", there.Load(), here.Load())
	}
}
