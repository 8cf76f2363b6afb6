package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
)

// wantBusy checks for a refusal with a text and a time to try again; "" for none.
func wantBusy(t *testing.T, want string, do func() error) {
	t.Helper()
	err := do()
	if want == "" && err == nil {
		return
	}
	var e *farm.Error
	if !errors.As(err, &e) || e.Code != farm.CodeBusy || e.RetryAfter <= 0 || e.Message != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// limited starts a controller with limits on the existing records.
func (c *cloud) limited(l admission.Limits) {
	c.t.Helper()
	c.stop()
	c.start(Options{Limits: l})
	synctest.Wait()
}

// startFor requests instances for a caller.
func (c *cloud) startFor(caller string, req StartRequest) error {
	c.t.Helper()
	req.TemplateID, req.Caller, req.Count = templateID, caller, max(req.Count, 1)
	req.Options.Priority = farm.DefaultPriority
	_, err := c.Start(c.t.Context(), req)
	synctest.Wait()
	return err
}

// TestWaitingInstancesAreLimited: pending instances are limited per caller and in total, after a
// restart and at another replica too. Instances with a node do not count, and a refused request
// leaves nothing.
func TestWaitingInstancesAreLimited(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		limits := admission.Limits{Waiting: 8}
		c.limited(limits)
		start := func(on *cloud, caller string, count int, want string) {
			t.Helper()
			wantBusy(t, want, func() error { return on.startFor(caller, StartRequest{Count: count}) })
		}
		const mine = "You have %d instances that wait for a node and ask for %d more; one caller may have a quarter " +
			"of " +
			"the setting SVC_MAX_WAITING (8): terminate some, or try again later"
		start(c, "key a", 3, fmt.Sprintf(mine, 0, 3))
		start(c, "key a", 2, "")
		start(c, "key a", 1, fmt.Sprintf(mine, 2, 1))
		start(c, "key b", 2, "")
		second := c.replica()
		start(second, "key a", 1, "") // its limits are the default ones
		second.stop()
		c.limited(limits)
		start(c, "key a", 1, fmt.Sprintf(mine, 3, 1))
		start(c, "", 4, "There are 5 instances that wait for a node, and 4 more are requested; the limit is 8 "+
			"(setting SVC_MAX_WAITING): try again later")
		if n := c.tables.Instances.Len(); n != 5 {
			t.Errorf("%d instances, want 5", n)
		}
		c.join("node", 7) // the five are placed
		start(c, "key a", 5, fmt.Sprintf(mine, 0, 3))
		start(c, "key a", 4, "") // two are placed immediately
		start(c, "key a", 1, fmt.Sprintf(mine, 2, 1))
		for id, inst := range c.tables.Instances.All() {
			if inst.AwaitsPlacement() {
				if err := c.Instances.Terminate(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		start(c, "key a", 2, "")
	})
}

// TestSizesAreLimited: the records of pending instances and scripts are limited in bytes, too.
// Instances of one request share a script, which counts until the last of them is removed.
func TestSizesAreLimited(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.limited(admission.Limits{WaitingSize: 80 << 10, ScriptsSize: 4000})
		script := withScript(5, strings.Repeat("x", 600))
		wantBusy(t, "", func() error { return c.startFor("key a", script) })
		const refused = "You have 600 bytes of startup scripts and ask for 600 more; one caller may have a quarter " +
			"of the setting " +
			"SVC_MAX_SCRIPTS_SIZE (4000): terminate some, or try again later"
		wantBusy(t, refused, func() error { return c.startFor("key a", script) })
		wantBusy(t, "", func() error { return c.startFor("key b", script) })
		c.restart()
		c.limited(admission.Limits{WaitingSize: 80 << 10, ScriptsSize: 4000})
		wantBusy(t, refused, func() error { return c.startFor("key a", script) })
		for id, inst := range c.tables.Instances.All() {
			if inst.Caller == "key a" {
				if err := c.Instances.Terminate(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(10 * time.Second)
		wantBusy(t, "", func() error { return c.startFor("key a", script) })
		wantBusy(t, "", func() error { return c.startFor("key c", StartRequest{Name: "small"}) })
		const large = 20 << 10
		err := c.startFor("key c", StartRequest{Metadata: map[string]any{"k": strings.Repeat("x", large)}})
		if text := fmt.Sprint(err); farm.CodeOf(err) != farm.CodeBusy ||
			!strings.Contains(text, "SVC_MAX_WAITING_SIZE (81920)") {
			t.Errorf("%v", err)
		}
		ports := make([]farm.Port, 16)
		for i := range ports {
			ports[i].Name = strings.Repeat("<", 255) // six bytes each as stored
		}
		escaped := StartRequest{Options: farm.StartOptions{Ports: ports}}
		if err := c.startFor("key c", escaped); farm.CodeOf(err) != farm.CodeBusy {
			t.Errorf("what grows as it is stored: %v", err)
		}
		for id, inst := range c.tables.Instances.All() {
			if inst.Name != "small" {
				continue
			}
			err := c.Instances.Update(t.Context(), id,
				instances.Update{Metadata: map[string]any{"k": strings.Repeat("x", large)}})
			if farm.CodeOf(err) != farm.CodeBusy {
				t.Errorf("an instance that grows: %v", err)
			}
		}
	})
}

// TestSavesAreLimited: pending or failed save requests are limited per caller in number and bytes,
// and the oldest failed ones are removed for new ones.
func TestSavesAreLimited(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		o, p, q := c.started(a), c.started(a), c.started(a)
		c.limited(admission.Limits{Waiting: 16, WaitingSize: 64 << 10})
		a.contact()
		saveOf := func(o api.Order, caller string, edits ...func(*saves.Request)) error {
			edits = append(edits, func(ask *saves.Request) { ask.Caller = caller })
			_, err := c.Saves.Create(t.Context(), asking(o, edits...))
			return err
		}
		save := func(caller string, edits ...func(*saves.Request)) error { return saveOf(o, caller, edits...) }
		bad := func(ask *saves.Request) { ask.BadScript = errBad{} }
		for range 4 { // all before the reconciler runs
			wantBusy(t, "", func() error { return save("key a", bad) })
		}
		const most = "You have 4 save requests that are pending or failed and ask for 1 more; one caller may have " +
			"a quarter of the " +
			"setting SVC_MAX_WAITING (16): the oldest that failed are removed within a minute"
		wantBusy(t, most, func() error { return save("key a", bad) })
		wantBusy(t, most, func() error { return save("key a") })
		wantBusy(t, "", func() error { return c.startFor("key a", StartRequest{Count: 4}) })
		wantBusy(t, "", func() error { return save("key b", bad) })
		time.Sleep(2 * reconcile.SweepInterval)
		synctest.Wait()
		view := c.tables.Saves.Snapshot()
		if mine, all := view.Sum(record.SavesByCaller, "key a")[0], view.Len(); mine != 2 || all != 3 {
			t.Errorf("%d failed requests of one caller, %d of all; want 2 and 3", mine, all)
		}
		a.contact()
		// six bytes each as stored
		large := func(ask *saves.Request) { ask.Description = strings.Repeat("<", 4<<10) }
		err := save("key a", large)
		if text := fmt.Sprint(err); farm.CodeOf(err) != farm.CodeBusy ||
			!strings.Contains(text, "SVC_MAX_WAITING_SIZE (65536)") {
			t.Errorf("bytes: %v", err)
		}
		wantBusy(t, "", func() error { return save("key a") })
		wantBusy(t, "", func() error { return saveOf(p, "key a") })
		wantBusy(t, most, func() error { return saveOf(q, "key a", bad) })
	})
}

// TestKeysAreLimited: a caller has a share of the stored idempotency keys, and loses the oldest of
// its own.
func TestKeysAreLimited(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.limited(admission.Limits{IdempotencyKeys: 16})
		recall := func(caller, id, want string) {
			t.Helper()
			ask := idempotency.Request{ID: id, Digest: "d", Caller: caller}
			wantBusy(t, want, func() error {
				if _, _, err := c.Idempotency.Lookup(t.Context(), &ask, false); err != nil {
					return err
				}
				_, err := c.Start(idempotency.WithRequest(t.Context(), ask),
					StartRequest{TemplateID: templateID, Count: 1, Caller: caller})
				return err
			})
			time.Sleep(time.Millisecond)
		}
		for i := range 4 {
			recall("key a", fmt.Sprint("a", i), "")
		}
		recall("key a", "a4",
			"You have 4 stored requests with an Idempotency-Key, the limit per caller: a quarter of the "+
				"setting SVC_MAX_IDEMPOTENCY_KEYS (16); leave the key out, or try again in a few minutes")
		recall("key b", "b0", "")
		time.Sleep(2 * reconcile.SweepInterval)
		synctest.Wait()
		var left []string
		for id := range c.tables.Idempotency.All() {
			left = append(left, id)
		}
		if got := strings.Join(left, " "); got != "a2 a3 b0" { // of half of the limit a quarter is one caller's
			t.Errorf("remembered: %s", got)
		}
	})
}

// TestRefusedStartsAreNotPlaced: a request that is refused after its placement was decided frees
// the capacity.
func TestRefusedStartsAreNotPlaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.limited(admission.Limits{ScriptsSize: 40})
		a := c.join("node", 1)
		if err := c.startFor("key a", withScript(1, "more than ten")); farm.CodeOf(err) != farm.CodeBusy {
			t.Errorf("%v", err)
		}
		c.wantScripts(0)
		c.mustStart(StartRequest{})
		a.take(api.OrderStart)
	})
}
