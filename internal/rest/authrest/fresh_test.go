package authrest_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/authrest"
)

// behind is a replica that learns of changes of another one only on request.
type behind struct {
	asked atomic.Int64
	learn func()
	err   error
}

func (b *behind) fresh(context.Context) error {
	b.asked.Add(1)
	if b.err == nil && b.learn != nil {
		b.learn()
	}
	return b.err
}

// TestChangesOfOtherReplicas: keys and permissions are shown and changed in the state that any replica has
// acknowledged, or not at all.
func TestChangesOfOtherReplicas(t *testing.T) {
	b := &behind{}
	s := newSite(t, farm.ServiceController, func(o *authrest.Options) { o.WaitConsistent = b.fresh })
	c := s.client(t)
	for _, what := range []string{
		"GET /api/v1/apikey", "POST /api/v1/apikey", "PUT /api/v1/apikey", "DELETE /api/v1/apikey",
		"GET /admin/api/v1/permission/group", "GET /admin/v1/api/permission/group/a",
		"POST /admin/api/v1/permission/group/a",
		"DELETE /admin/api/v1/permission/group/a", "GET /admin/api/v1/permission/group/a/resources",
		"POST /admin/api/v1/permission/group/a/resources",
	} {
		b.err = nil
		before := b.asked.Load()
		s.do(t, c, what, `{"id":"x"}`, "Authorization", rootBasic(rootToken))
		if b.asked.Load() != before+1 {
			t.Errorf("%s did not ask", what)
		}
		b.err = errors.New("the store is away")
		if a := s.do(t, c, what, `{"id":"x"}`, "Authorization",
			rootBasic(rootToken)); a.code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", what, a.code, a.text)
		}
	}
	before := b.asked.Load()
	if a := s.do(t, c, "GET /vm", "", "Authorization", rootBasic(rootToken)); a.code != http.StatusOK ||
		b.asked.Load() != before {
		t.Errorf("other routes: %d, asked %d times", a.code, b.asked.Load()-before)
	}
}

// TestAKeyOfAMomentAgo: a hand for a key that another replica has just created waits for it. One for a known or
// nonexistent key takes no longer than that and gets the same response.
func TestAKeyOfAMomentAgo(t *testing.T) {
	b := &behind{}
	s := newSite(t, farm.ServiceController, func(o *authrest.Options) { o.WaitConsistent = b.fresh })
	c := s.client(t)
	pair := s.makeKey(t, c, "ci")
	record, err := s.keys.Get("ci")
	must(t, err)
	store := s.table
	must(t, store.Delete(t.Context(), record))
	b.learn = func() { _ = store.Create(t.Context(), record) }
	before := b.asked.Load()
	s.hand(t, c, "ci", pair)
	s.hand(t, c, "ci", pair)
	if n := b.asked.Load() - before; n != 1 {
		t.Errorf("it asked %d times", n)
	}
	over := record
	over.Expires = time.Now().Add(-time.Minute)
	must(t, store.Replace(t.Context(), record, over))
	before = b.asked.Load()
	if a := s.do(t, c, "POST /tap/v1/hand", `{"id":"ci"}`); a.code != http.StatusOK || b.asked.Load() != before {
		t.Errorf("a key that has expired: %d %s, asked: %t", a.code, a.text, b.asked.Load() != before)
	}
	for range 3 {
		if a := s.do(t, c, "POST /tap/v1/hand", `{"id":"nobody"}`); a.code != http.StatusOK || len(a.text) != 344 {
			t.Errorf("%d %s", a.code, a.text)
		}
	}
	b.err = errors.New("the store is away")
	if a := s.do(t, c, "POST /tap/v1/hand", `{"id":"nobody"}`); a.code != http.StatusOK || len(a.text) != 344 {
		t.Errorf("%d %s", a.code, a.text)
	}
}

// TestFewWaitForUnknownKeys: the number of requests that wait for unknown keys is limited over all callers.
func TestFewWaitForUnknownKeys(t *testing.T) {
	b, open := &behind{}, make(chan struct{})
	b.learn = func() { <-open }
	s := newSite(t, farm.ServiceController, func(o *authrest.Options) { o.WaitConsistent = b.fresh })
	c := s.client(t)
	const many = 12
	codes := make(chan int, many)
	for range many {
		go func() { codes <- s.do(t, c, "POST /tap/v1/hand", `{"id":"nobody"}`).code }()
	}
	for range many - 4 {
		select {
		case code := <-codes:
			if code != http.StatusOK {
				t.Error(code)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("those who come later wait too")
		}
	}
	close(open)
	for range 4 {
		<-codes
	}
	if n := b.asked.Load(); n != 4 {
		t.Errorf("%d have asked", n)
	}
}
