package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/farm"
)

func everyNode(string) bool { return true }

// book is a Permits that a test changes.
type book struct {
	mu       sync.Mutex
	starters map[string][]string // nil: they are not in use
	changed  []func()
}

func (b *book) Starters() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.starters == nil {
		return nil
	}
	out := map[string][]string{}
	for node, groups := range b.starters {
		out[node] = slices.Clone(groups)
	}
	return out
}

func (b *book) Watch(changed func()) { b.changed = append(b.changed, changed) }

func (b *book) set(starters map[string][]string) {
	b.mu.Lock()
	b.starters = starters
	b.mu.Unlock()
	for _, changed := range b.changed {
		changed()
	}
	synctest.Wait()
}

// underPermits runs a test with permits in use.
func underPermits(t *testing.T, test func(t *testing.T, c *cloud, b *book)) {
	t.Helper()
	inCloud(t, func(t *testing.T, c *cloud) {
		b := &book{starters: map[string][]string{}}
		c.stop()
		c.start(Options{Permits: b})
		synctest.Wait()
		test(t, c, b)
	})
}

// where returns the name of the node of an instance, or why it waits.
func (c *cloud) where(id string) string {
	c.t.Helper()
	synctest.Wait()
	inst, err := c.Instances.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return cmp.Or(inst.NodeName, inst.Message)
}

const closed = "no node is open to the permission group ci"

func TestGroupsStartOnTheirNodesAlone(t *testing.T) {
	underPermits(t, func(t *testing.T, c *cloud, b *book) {
		one, two := c.join("one", 2), c.join("two", 2)
		b.set(map[string][]string{one.id: {"ops"}, two.id: {"ci", "ops"}})
		for range 2 {
			if got := c.where(c.mustStart(StartRequest{Group: "ci"})[0]); got != "two" {
				t.Errorf("placed on %s", got)
			}
		}
		id := c.mustStart(StartRequest{Group: "ci"})[0]
		if got, want := c.where(id),
			"no node that is open to the permission group ci has a free slot (1 node: 1 full)"; got != want {
			t.Errorf("waits because %q, want %q", got, want)
		}
		got := c.where(c.mustStart(StartRequest{Group: "dev"})[0])
		if got != "no node is open to the permission group dev" {
			t.Errorf("a group without nodes: %s", got)
		}
		b.set(map[string][]string{one.id: {"ci"}, two.id: {"ops"}}) // pending instances are placed where allowed now
		if got := c.where(id); got != "one" {
			t.Errorf("after the change: %s", got)
		}
	})
}

func TestPolicyAppliesToPendingInstances(t *testing.T) {
	underPermits(t, func(t *testing.T, c *cloud, b *book) {
		a := c.join("one", 1)
		b.set(map[string][]string{a.id: {"ci"}})
		first := c.mustStart(StartRequest{Group: "ci"})[0]
		id := c.mustStart(StartRequest{Group: "ci"})[0]
		pinned := c.mustStart(StartRequest{Group: "ci", Options: farm.StartOptions{PinnedNode: a.id}})[0]
		b.set(map[string][]string{})
		if got := c.where(id); got != closed {
			t.Errorf("waits because %q", got)
		}
		if got := c.where(pinned); got != "node one is not open to the permission group ci" {
			t.Errorf("pinned, it waits because %q", got)
		}
		if err := c.Instances.Terminate(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		c.wantSlots(a, 0)
		if got := c.where(id); got != closed {
			t.Errorf("placed on %q without the right", got)
		}
		c.stop() // and for a controller that starts with them
		c.start(Options{Permits: b})
		a.contact()
		if got := c.where(id); got != closed {
			t.Errorf("after a restart: %q", got)
		}
		b.set(map[string][]string{a.id: {"ci"}})
		a.contact()
		if at, other := c.where(id), c.where(pinned); (at == "one") == (other == "one") {
			t.Errorf("%q and %q", at, other)
		}
	})
}

// TestPermitsThatDoNotCount: where rights on nodes are switched off, an instance pending for a
// permission group is placed anywhere; where they are switched on, an instance pending without one
// is placed as requested.
func TestPermitsThatDoNotCount(t *testing.T) {
	underPermits(t, func(t *testing.T, c *cloud, b *book) {
		c.join("one", 1)
		id := c.mustStart(StartRequest{Group: "ci"})[0]
		if got := c.where(id); got != closed {
			t.Errorf("waits because %q", got)
		}
		b.set(nil)
		if got := c.where(id); got != "one" {
			t.Errorf("switched off: %q", got)
		}
		free := c.mustStart(StartRequest{})[0]
		b.set(map[string][]string{})
		if c.join("two", 1); c.where(free) != "two" {
			t.Errorf("asked for before: %q", c.where(free))
		}
	})
}

// TestNeeds: a caller's rights at the registry decide, and a template that it may not list does not
// exist for it.
func TestNeeds(t *testing.T) {
	all := []string{"list_vms", "delete_vm", "revert"}
	const notThere = "Not found"
	uses := map[string]func(c *cloud) error{
		"show": func(c *cloud) error { _, err := c.Templates.Get(c.t.Context(), templateID); return err },
		"start": func(c *cloud) error {
			_, err := c.Start(c.t.Context(), StartRequest{TemplateID: templateID, Count: 1})
			return err
		},
		"distribute": func(c *cloud) error {
			_, err := c.CacheJobs.Distribute(c.t.Context(), cachejobs.DistributeRequest{TemplateID: templateID})
			return err
		},
		"revert": func(c *cloud) error { return c.Templates.Revert(c.t.Context(), templateID, "v2", nil) },
		"delete": func(c *cloud) error { return c.Templates.Delete(c.t.Context(), templateID) },
	}
	for _, test := range []struct {
		name, use   string
		permissions []string
		rights      []string
		want        string // "": no error
	}{
		{"with the right", "show", all, []string{"list"}, ""},
		{"without it", "show", all, []string{"get_config"}, notThere},
		{
			"without the permission", "show", nil,
			[]string{"list"},
			"Your credential needs the permission list_vms at the registry",
		},
		{"with the right", "start", nil, []string{"pull"}, ""},
		{"unlisted", "start", nil, nil, "VM not in the registry"},
		{"listed", "start", nil, []string{"list"}, "You need the permission pull on the template " + templateID},
		{"with the right", "distribute", nil, []string{"pull"}, ""},
		{"unlisted", "distribute", nil, nil, notThere},
		{"listed", "distribute", nil, []string{"list"}, "You need the permission pull on the template " + templateID},
		{"with the right", "revert", all, []string{"delete_revert"}, ""},
		{"unlisted", "revert", all, []string{"pull"}, notThere},
		{"listed", "revert", all, []string{"list"}, "You need the permission delete_revert on the template " +
			templateID},
		{
			"without the permission", "revert",
			[]string{"delete_vm"},
			[]string{"delete_revert"},
			"Your credential needs the permission revert at the registry",
		},
		{"with the right", "delete", all, []string{"delete_revert"}, ""},
		{"listed", "delete", all, []string{"list"}, "You need the permission delete_revert on the template " +
			templateID},
		{
			"without the permission", "delete",
			[]string{"revert"},
			[]string{"delete_revert"},
			"Your credential needs the permission delete_vm at the registry",
		},
	} {
		inCloud(t, func(t *testing.T, c *cloud) {
			c.stop()
			c.start(Options{Rights: func(context.Context, string) (*api.CallerRights, error) {
				return &api.CallerRights{
					Enforced: true, Managed: true, Permissions: test.permissions,
					Templates: map[string][]string{templateID: test.rights},
				}, nil
			}})
			c.join("one", 1)
			err := uses[test.use](c)
			if got := cmp.Or(errText(err)); got != test.want {
				t.Errorf("%s, %s: %q, want %q", test.use, test.name, got, test.want)
			}
			if test.want != "" && len(c.shelf.changed) > 0 {
				t.Errorf("%s, %s: the registry was asked to %v", test.use, test.name, c.shelf.changed)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
