package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// TestDeletionsWithoutAnAnswer: the controller asks the registry whether a template was deleted
// when no outcome was recorded, and then writes the event, or not.
func TestDeletionsWithoutAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		gone bool
		want []string
	}{
		"carried out": {true, []string{"DeleteRegistryVm"}}, "not carried out": {false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
				c.shelf.mu.Lock()
				c.shelf.lost = true
				c.shelf.mu.Unlock()
				if err := c.Templates.Delete(t.Context(), templateID); farm.CodeOf(err) != farm.CodeUnavailable {
					t.Fatal(err)
				}
				c.shelf.mu.Lock()
				c.shelf.gone = tt.gone
				c.shelf.mu.Unlock()
				wantLines(t, to)
				c.shelf.setDown(true)
				time.Sleep(10 * time.Minute) // no outcome is recorded
				wantLines(t, to)
				c.shelf.setDown(false)
				time.Sleep(2 * time.Minute)
				wantLines(t, to, tt.want...)
				time.Sleep(10 * time.Minute)
				wantLines(t, to)
				wantNoDeletions(t, c)
			})
		})
	}
}

func wantNoDeletions(t *testing.T, c *cloud) {
	t.Helper()
	for id, s := range c.tables.Settings.All() {
		if s.Deletion != nil {
			t.Errorf("left is %s of %v", id, *s.Deletion)
		}
	}
}

// TestDeathInADeletion lets the process die at each commit of a deletion that the registry carries
// out: once a process runs again, it writes the event if the registry received the request.
func TestDeathInADeletion(t *testing.T) {
	for step := range 3 {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				to, durable := &inbox{}, mem.New()
				backend := &dying{Backend: durable, left: 1 << 30, after: after}
				c := &cloud{t: t, shelf: &shelf{}}
				opts := Options{Events: events.Options{Machine: "host", Push: to}}
				st, run := c.open(backend, opts)
				time.Sleep(10 * time.Second)
				if _, err := c.Templates.Get(t.Context(), templateID); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // its last known state is written, which may happen at any time after a read
				backend.mu.Lock()
				backend.left = step
				backend.mu.Unlock()
				_ = c.Templates.Delete(t.Context(), templateID)
				c.shelf.mu.Lock()
				deleted := len(c.shelf.changed) > 0
				c.shelf.gone = deleted
				c.shelf.mu.Unlock()
				run()
				_ = st.Close()

				c.backend = durable
				c.start(opts)
				time.Sleep(5 * time.Minute)
				told := len(to.lines())
				wantNoDeletions(t, c)
				c.stop()
				if told > 0 != deleted || told > 2 || deleted != (step > 0) {
					t.Errorf("death at %d/%t: deleted %t, told %d times", step, after, deleted, told)
				}
			})
		}
	}
}

// TestUnknownTemplatesAreNotNoted: a deletion of a template that does not exist writes nothing.
func TestUnknownTemplatesAreNotNoted(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		settings := c.tables.Settings.Len()
		if err := c.Templates.Delete(t.Context(), record.NewID()); farm.CodeOf(err) != farm.CodeNotFound {
			t.Error(err)
		}
		if c.tables.Settings.Len() != settings {
			t.Error("something was noted")
		}
		wantLines(t, to)
	})
}
