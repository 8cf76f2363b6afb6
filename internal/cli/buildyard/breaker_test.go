package buildyard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// flaky is a registry that answers, or does not, and counts the calls for templates.
type flaky struct {
	silent
	mu    sync.Mutex
	away  bool
	asked int
}

func (f *flaky) TemplateDetail(ctx context.Context, id string) (api.TemplateDetail, error) {
	f.mu.Lock()
	f.asked++
	away := f.away
	f.mu.Unlock()
	if away {
		return api.TemplateDetail{}, wait(ctx)
	}
	return api.TemplateDetail{Template: api.Template{ID: id}}, nil
}

func (f *flaky) set(away bool) (asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, f.away, f.asked = f.asked, away, 0
	return asked
}

// TestStartsDoNotQueueForARegistryThatIsAway: a thousand starts wait once, together, and those
// that come after them not at all; one call every two seconds finds out when it is back.
func TestStartsDoNotQueueForARegistryThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &flaky{away: true}
		calls := &registryCalls{client: reg, address: "http://far:8089"}
		look := func() (took time.Duration, err error) {
			began := time.Now()
			_, err = calls.TemplateDetail(t.Context(), "x")
			return time.Since(began), err
		}
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if took, err := look(); took > registryStartTimeout || farm.CodeOf(err) != farm.CodeUnavailable {
					t.Errorf("after %s: %v", took, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		reg.set(true)
		for range 1000 {
			if took, err := look(); took != 0 || farm.CodeOf(err) != farm.CodeUnavailable ||
				!errors.Is(err, errBreakerOpen) {
				t.Fatalf("after %s: %v", took, err)
			}
		}
		if asked := reg.set(false); asked != 0 {
			t.Errorf("it was asked %d times within %s", asked, breakerRetryInterval)
		}
		time.Sleep(breakerRetryInterval)
		for range 2 {
			if took, err := look(); took != 0 || err != nil {
				t.Errorf("back, after %s: %v", took, err)
			}
		}
	})
}

// TestLastRights: the remembered rights of a caller apply to that caller, with these groups, for a
// time.
func TestLastRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := rest.Caller{
			Identity: auth.Identity{Name: "ann", Method: auth.ByKey, KeyID: "ann", Groups: []string{"ci"}},
		}
		managed := &api.CallerRights{Managed: true, Templates: map[string][]string{"t": {"pull"}}}
		var l rightsCache
		l.put(ann, "t", managed)
		if got, ok := l.get(ann, "t"); !ok || got != managed {
			t.Errorf("got %v, %t", got, ok)
		}
		other, grown := ann, ann
		other.Name, grown.Groups = "ben", []string{"ci", "more"}
		for name, c := range map[string]rest.Caller{"another caller": other, "another group": grown} {
			if _, ok := l.get(c, "t"); ok {
				t.Errorf("%s has ann's rights", name)
			}
		}
		if _, ok := l.get(ann, "u"); ok {
			t.Error("rights on t count for u")
		}
		program := ann
		for i := range 2 * rightsMost { // the registry is asked for the key alone, whomever its program names
			program.ActsFor = &auth.Identity{Name: fmt.Sprint(i), Method: auth.ByLocal}
			l.put(program, "t", managed)
		}
		if len(l.entries) != 1 {
			t.Errorf("%d names of one caller are remembered", len(l.entries))
		}
		l.put(ann, "", managed)
		if _, ok := l.get(ann, "u"); ok {
			t.Error("an answer about all templates says nothing of one that has come since")
		}
		l.put(ann, "", &api.CallerRights{})
		if _, ok := l.get(ann, "u"); !ok {
			t.Error("where rights on templates do not count, those of the caller count for all")
		}
		time.Sleep(rightsAge)
		if _, ok := l.get(ann, "t"); ok {
			t.Errorf("rights count after %s", rightsAge)
		}
	})
}

// TestCachedVersionStartsWhileTheRegistryIsAway stops the registry's process part permanently: a version that
// is in a node's cache starts there, also after a restart of the controller.
func TestCachedVersionStartsWhileTheRegistryIsAway(t *testing.T) {
	y := newYard(t)
	template := y.push("", "v1", y.disk(1, 1)).ID
	registry := "http://" + y.settings["registry-listen-address"]
	settings := map[string]string{"registry": registry, "listen-addr": freeAddress(t)}
	dir := t.TempDir()
	far := &yard{t: t, dir: dir, line: y.line}
	var stop func()
	up := func() {
		far.service, stop = startController(t, dir, false, settings)
		far.api.base = far.service.URL()
	}
	up()
	defer func() { stop() }()
	far.nodes("cached", 1)
	started := func(id string) (inst api.Instance) {
		far.await("a start of "+id, func() bool {
			inst = far.instance(id)
			if inst.InstanceState == "Error" {
				t.Fatalf("the start failed: %s", inst.Message)
			}
			return inst.InstanceState == "Started"
		})
		return inst
	}
	node := started(far.start(template, "v1")).NodeID
	far.await("the node's description", func() bool { return len(far.list()[0].Templates) == 1 })
	far.nodes("empty", 1)
	y.stop() // the registry is gone
	y.stop = func() {}
	for _, again := range []string{"at once", "after a restart"} {
		if inst := started(far.start(template, "v1")); inst.NodeID != node {
			t.Errorf("%s: it runs on %s, not where the version lies", again, inst.NodeID)
		}
		stop()
		up()
		far.await("both nodes", func() bool {
			return len(far.list()) == 2 && far.list()[0].State == "Active" && far.list()[1].State == "Active"
		})
	}
	err := far.api.send(t.Context(), "POST", "/api/v1/vm",
		map[string]any{"vmid": "99999999-2222-4333-8444-555555555555"}, nil)
	want := "Template 99999999-2222-4333-8444-555555555555 is not in the controller's records, and the registry " +
		"cannot be queried: The registry " +
		"at " +
		registry + " cannot be reached; try again"
	if err == nil || err.Error() != want {
		t.Errorf("an unknown template: %v, want %q", err, want)
	}
}
