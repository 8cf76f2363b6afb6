package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// TestPoolWritesInterrupted: a write of a pool whose commit is disturbed, and whose replica ends after it, is there as
// a whole if it was acknowledged, else not at all. The key of a creation is stored together with its pool.
func TestPoolWritesInterrupted(t *testing.T) {
	for fault, c := range map[string]struct {
		plan    []storetest.Fault
		written bool
	}{
		"undisturbed":       {nil, true},
		"reply lost":        {[]storetest.Fault{storetest.LoseReply}, true},
		"request lost":      {[]storetest.Fault{storetest.LoseRequest}, true},
		"refused":           {[]storetest.Fault{storetest.Refuse}, false},
		"all requests lost": {slices.Repeat([]storetest.Fault{storetest.LoseRequest}, 40), false},
	} {
		for _, write := range []string{"create", "update", "delete"} {
			t.Run(write+", "+fault, func(t *testing.T) {
				inPair(t, func(t *testing.T, p *pair) {
					e, ask := p.ends[1], idempotency.Request{ID: "key", Digest: "digest"}
					create := func(ctx context.Context) (*farm.Pool, error) {
						return e.Pools.Create(ctx, farm.Pool{Name: "warm", TemplateID: templateID},
							func(p *farm.Pool) any { return p.ID })
					}
					was, now := "", "warm"
					id := ""
					if write != "create" {
						made, err := create(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						was, id = "warm", made.ID
					}
					synctest.Wait()

					e.faults.Next(c.plan...)
					var err error
					switch write {
					case "create":
						_, err = create(idempotency.WithRequest(t.Context(), ask))
					case "update":
						now = "cold"
						err = e.Pools.Update(t.Context(), id, func(p *farm.Pool) { p.Name = now })
					case "delete":
						now = ""
						err = e.Pools.Delete(t.Context(), id)
					}
					if (err == nil) != c.written {
						t.Fatalf("the write ends with %v", err)
					}
					e.stop()
					p.start(1)

					want := was
					if c.written {
						want = now
					}
					p.wantPool(want)
					if write == "create" {
						_, ok, err := p.ends[1].Idempotency.Lookup(t.Context(), &ask, true)
						if ok != c.written || err != nil {
							t.Errorf("the key is stored: %t, %v", ok, err)
						}
					}
				})
			})
		}
	}
}

// wantPool checks that both replicas have one pool with a name; "" for none.
func (p *pair) wantPool(name string) {
	p.t.Helper()
	for i, e := range p.ends {
		var names []string
		for _, v := range e.Pools.List() {
			names = append(names, v.Name)
		}
		if len(names) > 1 || (len(names) == 1) != (name != "") || len(names) == 1 && names[0] != name {
			p.t.Errorf("replica %d has the pools %v, want %q", i, names, name)
		}
	}
}
