// Package authtest has the tests that every store of internal/auth must pass.
//
// It is not part of a program, and it does not test how a store keeps its data.
//
// Invariant: a store that passes can replace any other one that does.
package authtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// Key makes a record. Its public key is not a real one.
func Key(id string) farm.APIKey {
	now := time.Now().UTC().Round(0)
	return farm.APIKey{
		ID: id, Groups: []string{"a", "b"}, PublicKey: []byte{1, 2, 3}, Created: now,
		Expires: now.Add(time.Hour), Generation: "0123456789abcdef",
	}
}

// Keys tests a KeyStore. open returns the same store each time, as after a restart.
func Keys(t *testing.T, open func(t *testing.T) auth.KeyStore) {
	ctx := t.Context()
	s := open(t)
	var changed []string
	s.Watch(func(id string) { changed = append(changed, id) })
	one := Key("one")
	must(t, s.Create(ctx, one))
	must(t, s.Create(ctx, Key("a/b ü")))
	if err := s.Create(ctx, one); !errors.Is(err, auth.ErrKeyExists) {
		t.Errorf("a second key of the same id: %v", err)
	}
	two := one
	two.Groups = []string{"c"}
	must(t, s.Replace(ctx, one, two))
	if err := s.Replace(ctx, one, two); !errors.Is(err, auth.ErrKeyChanged) {
		t.Errorf("a replacement of what is not there: %v", err)
	}
	if err := s.Delete(ctx, one); !errors.Is(err, auth.ErrKeyChanged) {
		t.Errorf("a deletion of what is not there: %v", err)
	}
	for _, again := range []auth.KeyStore{s, open(t)} {
		got, ok := again.Get("one")
		if !ok || !auth.SameKey(got, two) {
			t.Errorf("%+v, %t; want %+v", got, ok, two)
		}
		var ids []string
		for _, k := range again.List() {
			ids = append(ids, k.ID)
		}
		if !slices.Equal(ids, []string{"a/b ü", "one"}) {
			t.Errorf("keys %q", ids)
		}
	}
	must(t, s.Delete(ctx, two))
	for _, again := range []auth.KeyStore{s, open(t)} {
		if _, ok := again.Get("one"); ok {
			t.Error("a deleted key is there")
		}
	}
	if !slices.Equal(changed, []string{"one", "one"}) {
		t.Errorf("told of %q", changed)
	}
	creators(t, open(t))
}

// creators has many make one key: one of them does.
func creators(t *testing.T, s auth.KeyStore) {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			k := Key("race")
			k.Generation = fmt.Sprint(i)
			errs[i] = s.Create(t.Context(), k)
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.Is(err, auth.ErrKeyExists) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d have made the key", made)
	}
}

// Nonces tests a NonceStore. open returns the same one each time, as after a restart; durable is
// whether it must survive that.
func Nonces(t *testing.T, open func(t *testing.T) auth.NonceStore, durable Durability) {
	ctx, until := t.Context(), time.Now().Add(time.Hour)
	m := open(t)
	use := func(m auth.NonceStore, n int, want bool) {
		t.Helper()
		if first, err := m.Use(ctx, auth.Nonce{byte(n), byte(n >> 8)}, until); err != nil || first != want {
			t.Errorf("mark %d: %t, %v", n, first, err)
		}
	}
	use(m, 1, true)
	use(m, 1, false)
	use(m, 2, true)
	if first, err := m.Use(ctx, auth.Nonce{9}, time.Now().Add(-time.Second)); first || err != nil {
		t.Errorf("a mark whose time is over: %t, %v", first, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	firsts := map[int]int{}
	for i := range 2000 {
		wg.Go(func() {
			first, err := m.Use(ctx, auth.Nonce{byte(i / 4), byte(i / 4 >> 8), 1}, until)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if first {
				firsts[i/4]++
			}
		})
	}
	wg.Wait()
	for i := range 500 {
		if firsts[i] != 1 {
			t.Fatalf("%d of 4 were the first to use mark %d", firsts[i], i)
		}
	}
	again := open(t)
	use(again, 1, durable == Forgets)
	use(again, 3, true)
}

// Grants tests a GrantStore of a registry. open returns the same one each time, as after a restart;
// durable is whether it must survive that.
func Grants(t *testing.T, open func(t *testing.T) auth.GrantStore, durable Durability) {
	const service = farm.ServiceRegistry
	many := 1000 // more than fit one record
	if fulltest.All() {
		many = auth.MaxGroupResources
	}
	s, calls := open(t), 0
	s.Watch(func() { calls++ })
	change := func(do func(auth.Grants) (auth.Grants, error)) {
		t.Helper()
		before := calls
		must(t, s.Change(t.Context(), do))
		if calls != before+1 {
			t.Errorf("told %d times of a change", calls-before)
		}
	}
	set := func(name string, list ...farm.Permission) func(auth.Grants) (auth.Grants, error) {
		return func(g auth.Grants) (auth.Grants, error) { return g.SetGroup(service, name, list) }
	}
	on := func(name string, n int) func(auth.Grants) (auth.Grants, error) {
		return func(g auth.Grants) (auth.Grants, error) { return g.SetGroupResources(service, name, Resources(n)) }
	}
	look := func(s auth.GrantStore, want auth.Grants) {
		t.Helper()
		got := s.Grants()
		if reflect.DeepEqual(want, got) {
			return // cmp takes seconds for many rights
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("grants: %s", diff)
		}
	}
	var want auth.Grants
	look(s, want)
	for _, do := range []func(auth.Grants) (auth.Grants, error){
		set("a", "pull_vm", "index"), set("nothing"), set("<ci> & ü/g/x", "index"), on("a", 3), on("many", many),
		on("none", 0),
		func(g auth.Grants) (auth.Grants, error) { g.Enforced = true; return g, nil },
		on("many", many-1), on("a", 2), set("a", "index"), on("many", 1),
		func(g auth.Grants) (auth.Grants, error) { return g.DeleteGroup("nothing") }, on("many", many/2),
	} {
		change(do)
		var err error
		want, err = do(want)
		must(t, err)
		look(s, want)
	}
	errNo := errors.New("no")
	if err := s.Change(t.Context(),
		func(auth.Grants) (auth.Grants, error) { return auth.Grants{}, errNo }); !errors.Is(err, errNo) {
		t.Errorf("a change that does not want to be: %v", err)
	}
	look(s, want)
	if durable == Durable {
		s = open(t)
		look(s, want)
	}
	changers(t, s)
}

// changers has many make a group each: all are there.
func changers(t *testing.T, s auth.GrantStore) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			err := s.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
				return g.SetGroup(farm.ServiceRegistry, fmt.Sprint("changer ", i), []farm.Permission{"index"})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		if _, ok := s.Grants().Groups[fmt.Sprint("changer ", i)]; !ok {
			t.Errorf("the change of %d is lost", i)
		}
	}
}

// Resources makes n rights on templates, with ids of the greatest length.
func Resources(n int) []farm.ResourcePermission {
	list := make([]farm.ResourcePermission, n)
	for i := range list {
		id := fmt.Sprintf("%d<&>", i)
		list[i] = farm.ResourcePermission{
			ID: id + strings.Repeat("<", 128-len(id)), IDType: "id", Type: farm.ResourceTemplate,
			Permissions: []farm.Permission{"pull", "list"},
		}
	}
	return list
}

// Durability is whether a store outlives its process.
type Durability int

// The durabilities.
const (
	Forgets Durability = iota
	Durable
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
