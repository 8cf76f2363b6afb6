package controller

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestPollThatDoesNotWait: the poll is answered immediately, since part of the node's report is
// missing.
func TestPollThatDoesNotWait(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		time.Sleep(time.Millisecond)
		began := time.Now()
		a.contact()
		if took := time.Since(began); took > 0 {
			t.Errorf("answered after %s", took)
		}
	})
}

// TestOneBadStatus: a status that cannot be stored is left out with an alarm, and the rest of the
// report counts.
func TestOneBadStatus(t *testing.T) {
	for name, spoil := range map[string]func(c *cloud, s *api.InstanceStatus){
		"a record that outgrows the store": func(c *cloud, s *api.InstanceStatus) {
			text := map[string]any{"x": strings.Repeat("x", store.MaxBytes-2000)}
			if err := c.Instances.Update(c.t.Context(), s.InstanceID, instances.Update{Metadata: text}); err != nil {
				c.t.Fatal(err)
			}
			s.Script = &api.ScriptStatus{Stdout: strings.Repeat("y", 64<<10)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				var logged strings.Builder
				c.stop()
				c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				a := c.join("one", 2)
				c.mustStart(StartRequest{Count: 2})
				var statuses []api.InstanceStatus
				for _, o := range a.next() {
					statuses = append(statuses,
						api.InstanceStatus{InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: api.PhaseRunning})
				}
				spoil(c, &statuses[0])
				for range 2 {
					if _, err := c.Link.Report(t.Context(), a.cred,
						api.Report{NodeID: a.id, BootID: a.boot, Statuses: statuses}); err != nil {
						t.Fatalf("the report fails: %v", err)
					}
				}
				c.wantState(statuses[0].InstanceID, farm.Scheduling)
				c.wantState(statuses[1].InstanceID, farm.Started)
				if n := strings.Count(logged.String(),
					"instance status of a node dropped: too large to store"); n != 1 {
					t.Errorf("%d alarms: %s", n, logged.String())
				}
			})
		})
	}
}

// TestKeepNothing: with a retention of zero, the record of a terminated instance is removed
// immediately.
func TestKeepNothing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.start(Options{KeepTerminated: -1})
		a := c.join("one", 1)
		o := c.started(a)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(o, api.PhaseTerminated)
		time.Sleep(time.Millisecond)
		c.wantState(o.InstanceID, farm.InstanceRemoved)
	})
}

// TestAlarmOfTheGuard: an alarm in the log begins with the word that operators look for.
func TestAlarmOfTheGuard(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var logged strings.Builder
		c.stop()
		c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		a := c.join("one", 9)
		a.stray(4)
		watch(5*time.Minute, a)
		if n := strings.Count(logged.String(),
			`msg="orphan removal suspended: many VMs of a node are orphaned`); n == 0 || n > 4 {
			t.Errorf("%d alarms: %s", n, logged.String())
		}
	})
}
