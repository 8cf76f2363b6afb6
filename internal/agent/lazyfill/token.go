package lazyfill

import (
	"net/http"
	"sync"
)

const authorization = "Authorization"

// token is the credential that the agent last sent. A request that the registry refused waits for the next one.
type token struct {
	mu      sync.Mutex
	header  string        // secret; "": none
	refused bool          // the registry refused it
	changed chan struct{} // closed by the next one
}

func newToken() *token { return &token{changed: make(chan struct{})} }

func (t *token) set(header string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.header, t.refused = header, false
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *token) authorize(r *http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.header != "" {
		r.Header.Set(authorization, t.header)
	}
	return nil
}

// renew waits for another credential than that of a refused request. It reports whether one came.
func (t *token) renew(r *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.header == r.Header.Get(authorization) {
		t.refused = true
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
			t.mu.Lock()
		case <-r.Context().Done():
			t.mu.Lock()
			return false
		}
	}
	return true
}

// refuse notes that the registry refused the credential.
func (t *token) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = true
}

func (t *token) isRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}
