package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/maintenance"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestMaintenance(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		begin := func(length time.Duration) record.Maintenance {
			t.Helper()
			m, err := c.Maintenance.Begin(t.Context(), length, "new disks")
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		want := func(on bool) {
			t.Helper()
			if _, is := c.Maintenance.Active(); is != on {
				t.Fatalf("maintenance = %v, want %v", is, on)
			}
		}
		want(false)
		first := begin(time.Hour)
		want(true)
		time.Sleep(time.Hour - time.Second)
		want(true)
		time.Sleep(time.Second)
		want(false)
		if at := c.Maintenance.After(first.Since); !at.Equal(first.Until) {
			t.Errorf("time-outs count from %s, want the end %s", at, first.Until)
		}
		first = begin(0)
		time.Sleep(time.Hour)
		c.away(47 * time.Hour)
		want(true)
		if at := c.Maintenance.After(first.Since); !at.Equal(first.Since) {
			t.Errorf("time-outs count from %s while it goes on", at)
		}
		if again := begin(time.Minute); !again.Since.Equal(first.Since) || again.Until.IsZero() {
			t.Errorf("begun again = %+v", again)
		}
		c.restart()
		want(true)
		if err := c.Maintenance.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(false)
		if err := c.Maintenance.End(t.Context()); err != nil {
			t.Errorf("ended twice: %v", err)
		}
		for _, bad := range []time.Duration{-1, maintenance.MaxLength + 1} {
			if _, err := c.Maintenance.Begin(t.Context(), bad, ""); farm.CodeOf(err) != farm.CodeInvalid {
				t.Errorf("%s: %v", bad, err)
			}
		}
	})
}

// TestMaintenanceLog: the log shows when a maintenance ends, or that it has no end.
func TestMaintenanceLog(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var logged strings.Builder
		c.stop()
		c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		for _, length := range []time.Duration{0, time.Hour} {
			if _, err := c.Maintenance.Begin(t.Context(), length, "new disks"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := c.Maintenance.End(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		text := logged.String()
		if strings.Count(text, "maintenance mode on") != 2 || !strings.Contains(text, `until="no end"`) ||
			strings.Contains(text, "0001-01-01") {
			t.Errorf("the log is %s", text)
		}
	})
}

// TestMaintenancePausesTheRegistry: the registry is asked again and again to pause for a bounded
// time, and one time to resume at the end.
func TestMaintenancePausesTheRegistry(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var mu sync.Mutex
		var told []time.Duration
		c.stop()
		c.start(Options{PauseRegistry: func(_ context.Context, length time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, length)
			return errors.New("not reached")
		}})
		synctest.Wait()
		if _, err := c.Maintenance.Begin(t.Context(), 50*time.Second, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		times := len(told)
		told = slices.Compact(told)
		if want := []time.Duration{time.Minute, 0}; !slices.Equal(told, want) || times < 4 || times > 5 {
			t.Errorf("the registry was told %v in %d calls, want %v", told, times, want)
		}
	})
}

// TestMaintenanceKeepsOrphans: no orphaned VM is removed during maintenance mode, nor
// immediately after it.
func TestMaintenanceKeepsOrphans(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.unknownOne()
		if _, err := c.Maintenance.Begin(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}
		a.pollFor(time.Hour, func(orders []api.Order) {
			if len(orders) > 0 {
				t.Fatalf("removed while maintenance continues: %+v", orders)
			}
		})
		if err := c.Maintenance.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended, removed := time.Now(), time.Time{}
		a.pollFor(10*time.Minute, func(orders []api.Order) {
			if len(orders) > 0 && removed.IsZero() {
				removed = time.Now()
			}
		})
		synctest.Wait()
		if wait := removed.Sub(ended); wait < 150*time.Second || wait > 170*time.Second {
			t.Errorf("removed %s after the end", wait)
		}
	})
}

// TestMaintenanceKeepsInstances: the instances of an offline node do not fail, and finished records
// stay; after it every timeout starts again. Requests of clients are still carried out.
func TestMaintenanceKeepsInstances(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		c.runs(a, 2)
		items := c.Instances.List(instances.Page{})
		ended, away := items[0].ID, items[1].ID
		if _, err := c.Maintenance.Begin(t.Context(), time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if err := c.Instances.Terminate(t.Context(), ended); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		time.Sleep(time.Hour - time.Second)
		c.wantState(ended, farm.Terminated)
		c.wantState(away, farm.Started)
		if v, _ := c.Nodes.Get(t.Context(), a.id); v.Node.State != farm.NodeOffline {
			t.Errorf("the silent node is shown as %s", v.Node.State)
		}
		time.Sleep(2 * time.Minute)
		c.wantState(ended, farm.InstanceRemoved)
		c.wantState(away, farm.Started)
		time.Sleep(30 * time.Second)
		c.wantState(away, farm.Errored)
	})
}
