package s3backend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

// operations change template idA; want is its state after each. They can be repeated.
var operations = []struct {
	name, want string
	do         func(t testing.TB, r *registry.Registry) error
}{
	{"push", "v1", func(t testing.TB, r *registry.Registry) error { return repeatable(t, r, "v1", 1, 1<<20) }},
	{"push by parts", "v1 v2", func(t testing.TB, r *registry.Registry) error {
		return repeatable(t, r, "v2", 2, 11<<20)
	}},
	{"revert", "v1", func(_ testing.TB, r *registry.Registry) error {
		return ignoreMissing(r.Revert(context.Background(), registry.VersionRef{ID: idA, Tag: "v2"}))
	}},
	{"collect", "v1", func(_ testing.TB, r *registry.Registry) error {
		_, err := r.GC(context.Background(), registry.GCOptions{})
		return err
	}},
	{"push of what is in the trash", "v1 v3", func(t testing.TB, r *registry.Registry) error {
		return repeatable(t, r, "v3", 2, 11<<20)
	}},
	{"delete", "none", func(_ testing.TB, r *registry.Registry) error {
		return ignoreMissing(r.Delete(context.Background(), idA))
	}},
	{"push after the deletion", "v4", func(t testing.TB, r *registry.Registry) error {
		return repeatable(t, r, "v4", 1, 1<<20)
	}},
}

func ignoreMissing(err error) error {
	switch farm.CodeOf(err) {
	case farm.CodeNotFound, farm.CodeNoVersion:
		return nil
	}
	return err
}

// repeatable pushes a tag unless it is there.
func repeatable(t testing.TB, r *registry.Registry, tag string, seed uint64, size int) error {
	if strings.Contains(" "+tags(r, idA)+" ", " "+tag+" ") {
		return nil
	}
	_, err := push(r, request(idA, tag), newDisk(t, seed, size))
	return err
}

// outage is a bucket that stops at the n-th request: before or after it is carried out, and for everything that
// follows.
type outage struct {
	mu    sync.Mutex
	left  int
	after bool
	down  atomic.Bool
}

func (o *outage) fault(*http.Request) s3test.Fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left--
	switch {
	case o.left > 0:
		return s3test.Fault{}
	case o.left == 0 && o.after:
		o.down.Store(true)
		return s3test.Fault{Lost: true}
	}
	o.down.Store(true)
	return s3test.Fault{Status: http.StatusForbidden} // not repeated
}

// testAll is set in the environment to end the contact at every request, and not at some by chance.
const testAll = "BUILDYARD_TEST_ALL"

// TestEndAtRequests ends the contact to the bucket at requests of every operation, as the end of the process
// does, and continues in the same or in another directory: each operation has happened or not, and can be repeated.
func TestEndAtRequests(t *testing.T) {
	cases, stretch := 0, 4
	if os.Getenv(testAll) != "" {
		stretch = 1
	}
	for at := 1 + rand.IntN(stretch); ; at += 1 + rand.IntN(2*stretch-1) {
		s := newSite(t)
		s.lease = 2 * time.Second
		o := &outage{left: at, after: rand.IntN(2) == 0}
		r := s.open("dir0")
		s.server.SetFault(o.fault)
		finished := runUntilOutage(t, s, r, o, at)
		cases++
		if finished {
			t.Logf("%d requests were cut", cases-1)
			return
		}
	}
}

// runUntilOutage runs the operations, and the rest of them after the outage. It reports whether there was none.
func runUntilOutage(t *testing.T, s *site, r *registry.Registry, o *outage, at int) bool {
	t.Helper()
	before := "none"
	for i, op := range operations {
		err := op.do(t, r)
		for !o.down.Load() && farm.CodeOf(err) == farm.CodeUnavailable { // this machine was too slow to renew the lease
			err = op.do(t, r)
		}
		if !o.down.Load() {
			if err != nil || tags(r, idA) != op.want {
				t.Fatalf("%s: %s, %v", op.name, tags(r, idA), err)
			}
			before = op.want
			continue
		}
		_ = r.Close() // it cannot release the lease
		s.server.SetFault(nil)
		r = s.open(fmt.Sprintf("dir%d", at%2))
		if got := tags(r, idA); got != before && got != op.want || err == nil && got != op.want {
			t.Fatalf("cut at request %d in %q (%v): %s, want %s or %s", at, op.name, err, got, before, op.want)
		}
		for _, op := range operations[i:] {
			err := op.do(t, r)
			for farm.CodeOf(err) == farm.CodeUnavailable {
				err = op.do(t, r)
			}
			if err := errors.Join(err, verify(r)); err != nil || tags(r, idA) != op.want {
				t.Fatalf("cut at request %d in %q, then %q: %s, %v", at, operations[i].name, op.name, tags(r, idA), err)
			}
		}
		if s.server.Uploads() != 0 { // the server began one for the ended process after it was replaced
			_ = r.Close()
			s.open("dir2")
		}
		if n := s.server.Uploads(); n != 0 {
			t.Errorf("cut at request %d: %d uploads are left after the next start", at, n)
		}
		return false
	}
	if n := s.server.Uploads(); n != 0 {
		t.Errorf("%d uploads are left without an outage", n)
	}
	return true
}
