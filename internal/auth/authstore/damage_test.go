package authstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

const (
	loseReply = storetest.LoseReply
	refuse    = storetest.Refuse
)

// faulty returns a cluster whose backend can be disturbed.
func faulty() (*cluster, *storetest.Faults) {
	faults := storetest.NewFaults(mem.New())
	return newCluster(faults), faults
}

// filled is a cluster with a record of each kind.
func filled(t *testing.T) (*cluster, *replica) {
	t.Helper()
	c := newCluster(mem.New())
	r := c.open(t)
	r.add(t, "ci")
	r.add(t, "other")
	_ = r.session(t, "ci")
	must(t, r.Grants(farm.ServiceRegistry).Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		g.Enforced = true
		g, err := g.SetGroup(farm.ServiceRegistry, "a", []farm.Permission{"index"})
		must(t, err)
		g, err = g.SetGroup(farm.ServiceRegistry, "b", []farm.Permission{"index"})
		must(t, err)
		return g.SetGroupResources(farm.ServiceRegistry, "b", authtest.Resources(400))
	}))
	return c, r
}

// damages are contents that are none.
var damages = []string{
	"", "{", "null", "[]", `"x"`, "{}", `{"group":{}}`, `{"part":{},"service":{}}`, `{"id":"x"}`,
	"\x00\xff",
}

// TestDamageIsReported: a record that cannot be read refuses the start with its name, and nothing
// is written.
func TestDamageIsReported(t *testing.T) {
	c, _ := filled(t)
	good := c.records(t)
	if len(good) < 9 {
		t.Fatalf("%v", slices.Collect(maps.Keys(good)))
	}
	for key, value := range good {
		if strings.HasPrefix(key, "meta/") || strings.HasPrefix(key, "x/") { // a mark is its id
			continue
		}
		for _, bad := range append([]string{value[:len(value)/2], value[1:], value + "x"}, damages...) {
			c.write(t, key, bad)
			before := c.records(t)
			_, err := c.tryOpen(t, slog.New(slog.DiscardHandler))
			if err == nil {
				t.Fatalf("%s with %.100q is taken", key, bad)
			}
			if !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("%s with %.100q: %v", key, bad, err)
			}
			if len(bad) > 20 && strings.Contains(err.Error(), bad[8:16]) {
				t.Errorf("%s: the error shows what is in it: %v", key, err)
			}
			if !maps.Equal(before, c.records(t)) {
				t.Errorf("%s: something was changed", key)
			}
		}
		c.write(t, key, value)
	}
	c.open(t)
}

// TestDamageIsReportedOnce: wrong names and wrong contents are found too, and a few are named.
func TestDamageIsReportedOnce(t *testing.T) {
	for key, value := range map[string]string{
		"x/oops": "{}", "y/stranger": "", "p/registry/g/root": `{"group":{"permissions":[]}}`,
		"p/registry/g/c": `{"group":{"permissions":["start_vm"]}}`,
	} {
		c, _ := filled(t)
		if key == "y/stranger" {
			value = c.records(t)["y/ci"]
		}
		c.write(t, key, value)
		if _, err := c.tryOpen(t, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s is taken", key)
		}
	}
	c, _ := filled(t)
	for i := range 100 {
		c.write(t, fmt.Sprint("y/bad", i), "{")
	}
	_, err := c.tryOpen(t, slog.New(slog.DiscardHandler))
	if err == nil || strings.Count(err.Error(), "cannot be read") != maxNamedRecords ||
		!strings.Contains(err.Error(), "95 more") {
		t.Errorf("%v", err)
	}
}

// TestDamageOpensNothing: what turns up while a replica runs.
func TestDamageOpensNothing(t *testing.T) {
	c, r := filled(t)
	ctx, grants := t.Context(), r.Grants(farm.ServiceRegistry)
	rules := auth.NewAuthorizer(auth.Policy{Service: farm.ServiceRegistry, Authorization: true}, grants)
	asA := auth.Identity{Name: "x", Groups: []string{"a"}, Method: auth.ByKey}
	asB := auth.Identity{Name: "x", Groups: []string{"b"}, Method: auth.ByKey}
	session := r.session(t, "ci")
	good := c.records(t)
	for _, bad := range damages {
		c.write(t, "y/ci", bad)
		c.write(t, "z/ring", bad)
		r.caughtUp(t)
		if _, ok := r.Keys().Get("ci"); ok || len(r.Keys().List()) != 1 || r.verify(t, session) == nil {
			t.Errorf("%q: a key that cannot be read counts", bad)
		}
		if err := r.Keys().Create(ctx, authtest.Key("ci")); !errors.Is(err, auth.ErrKeyExists) {
			t.Errorf("%q: it is written over: %v", bad, err)
		}
		if _, err := r.PruneExpired(ctx, time.Now()); err == nil {
			t.Errorf("%q: nothing is said of the ring", bad)
		}
		if err := r.ring.rotateKeys(ctx); err == nil || c.records(t)["z/ring"] != bad {
			t.Errorf("%q: the ring is written over: %v", bad, err)
		}
		_ = r.session(t, "other") // what was signed with continues to sign
		c.write(t, "z/ring", good["z/ring"])
		c.write(t, "y/ci", good["y/ci"])
		must(t, r.caughtUp(t).verify(t, session))

		c.write(t, "p/registry", bad)
		c.write(t, "p/registry/g/a", bad)
		r.caughtUp(t)
		if rules.Rules().Allows(asA, "index") || !rules.Rules().Allows(asB, "index") || !grants.Grants().Enforced {
			t.Errorf("%q: %+v", bad, grants.Grants().Groups)
		}
		err := grants.Change(ctx,
			func(g auth.Grants) (auth.Grants, error) { return g.SetGroup(farm.ServiceRegistry, "a", nil) })
		if err == nil || c.records(t)["p/registry/g/a"] != bad {
			t.Errorf("%q: a group is written over: %v", bad, err)
		}
		c.write(t, "p/registry", good["p/registry"])
		c.write(t, "p/registry/g/a", good["p/registry/g/a"])
		r.caughtUp(t)
		if !rules.Rules().Allows(asA, "index") {
			t.Errorf("%q: it does not count when it is whole again", bad)
		}
	}
	for key := range good {
		if strings.HasPrefix(key, "p/registry/r/") {
			c.remove(t, key)
		}
	}
	r.caughtUp(t)
	if got := grants.Grants(); got.Resources["b"] != nil || got.Groups["b"] != nil {
		t.Error("a group whose parts are missing has something")
	}
}

// TestRingIsMadeAgain: the removal of the signing keys ends all sessions.
func TestRingIsMadeAgain(t *testing.T) {
	c, r := filled(t)
	session := r.session(t, "ci")
	c.remove(t, "z/ring")
	must(t, r.caughtUp(t).verify(t, session))
	if _, err := r.PruneExpired(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if r.verify(t, session) == nil {
		t.Error("the session goes on")
	}
	must(t, r.verify(t, r.session(t, "ci")))
}

func FuzzRecords(f *testing.F) {
	key, err := json.Marshal(authtest.Key("one"))
	must(f, err)
	ring, err := encodeSigning(signingKeys{"e", auth.NewKeyRing(time.Unix(1, 0))})
	must(f, err)
	f.Add(key)
	f.Add(ring)
	for _, text := range append(slices.Clone(damages),
		`{"service":{"enforced":true}}`, `{"part":{"made":"2020-01-01T00:00:00Z","resources":[]}}`,
		`{"group":{"permissions":["index"],"resources":[{"id":"x","type":"node","permissions":[]}],"parts":["p"]}}`) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		again(t, marshal[farm.APIKey], decodeKey, raw)
		again(t, marshal[grantRecord], decodeGrant, raw)
		again(t, encodeSigning, decodeSigning, raw)
	})
}

func marshal[T any](v T) ([]byte, error) { return json.Marshal(v) }

// again checks that what was read can be stored, and is read as the same.
func again[T any](t *testing.T, encode func(T) ([]byte, error), decode func([]byte) (T, error), raw []byte) {
	t.Helper()
	v, err := decode(raw)
	if err != nil {
		return
	}
	one, err := encode(v)
	if err != nil {
		return // a time that has no text
	}
	v, err = decode(one)
	if err != nil {
		t.Fatalf("%q was stored as %q: %v", raw, one, err)
	}
	if two, err := encode(v); err != nil || string(two) != string(one) {
		t.Fatalf("%q was stored as %q, and then as %q: %v", raw, one, two, err)
	}
}
