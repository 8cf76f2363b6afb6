//go:build linux

package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// fakeQEMU answers a monitor's commands with the values set for each, repeating the last one
// indefinitely, and records the commands.
type fakeQEMU struct {
	answers map[string][]string // command -> values; "!" = refused

	mu  sync.Mutex
	did []string // commands that are not queries, with their main argument
}

func (f *fakeQEMU) serve(c net.Conn, r *bufio.Reader) {
	say(c, greeting)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			Execute   string
			Arguments map[string]any
			ID        *uint64
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			say(c, `{"return": {}}`+"\n")
			continue
		}
		f.mu.Lock()
		said := "{}"
		if a := f.answers[m.Execute]; len(a) > 0 {
			said = a[0]
			f.answers[m.Execute] = a[min(1, len(a)-1):]
		}
		if !strings.HasPrefix(m.Execute, "query-") && m.Execute != "closefd" && m.Execute != "remove-fd" {
			name, _ := m.Arguments["node-name"].(string)
			f.did = append(f.did, strings.TrimSpace(m.Execute+" "+name))
		}
		f.mu.Unlock()
		if said == "!" {
			say(c, fmt.Sprintf(`{"error": {"class": "GenericError", "desc": "refused"}, "id": %d}`+"\n", *m.ID))
		} else {
			say(c, fmt.Sprintf(`{"return": %s, "id": %d}`+"\n", said, *m.ID))
		}
	}
}

// fakeRun is a run of a VM with two disks in which save 3 is not settled, over
// overlays 0 and 2.
func fakeRun(t *testing.T, f *fakeQEMU) *run {
	t.Helper()
	q, err := newQMP(t.Context(), peer(t, f.serve))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = q.serve(func(qmpMessage) {}) }()
	d := &Driver{log: slog.New(slog.DiscardHandler), stepHook: func(string) {}}
	d.ctx, d.cancel = context.WithCancel(t.Context())
	m := d.newMachine("vm")
	m.dir = t.TempDir()
	m.config = vmConfig{Spec: hv.Spec{Disks: make([]hv.Disk, 2)}, Generations: []int{0, 2}, LastUsed: 3, Saving: 3}
	for i := range 2 {
		if err := os.WriteFile(m.overlayPath(i, 3), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &run{machine: m, qmp: q, exited: make(chan struct{}), qmpConnected: make(chan struct{})}
}

func status(s string) string { return fmt.Sprintf(`{"status": %q}`, s) }

const (
	rootsOld = `[{"device": ""}, {"inserted": {"node-name": "disk0-2"}}, {"inserted": {"node-name": "disk1-2"}}]`
	rootsNew = `[{"inserted": {"node-name": "disk1-3"}}, {"inserted": {"node-name": "disk0-3"}}]`
)

// How far a save came, according to QEMU, and the resulting actions (decision 14).
func TestSettle(t *testing.T) {
	drop := []string{"blockdev-del disk0-3", "blockdev-del disk1-3"}
	for _, c := range []struct {
		name     string
		state    string
		transfer []string
		roots    string
		did      []string
		adopted  bool
	}{
		{"running, old", "running", []string{"{}"}, rootsOld, drop, false},
		{"paused, old", "paused", []string{"{}"}, rootsOld, append([]string{"cont"}, drop...), false},
		{"paused, new", "paused", []string{"{}"}, rootsNew, []string{"cont"}, true},
		{
			"state on its way", "finish-migrate",
			[]string{status("active"), status("cancelling"), status("cancelled")},
			rootsNew,
			[]string{"migrate_cancel", "cont"},
			true,
		},
		{
			"ended before the cancel", "postmigrate",
			[]string{status("active"), status("completed")},
			rootsNew,
			[]string{"migrate_cancel", "cont"},
			true,
		},
		{"state failed", "paused", []string{status("failed")}, rootsNew, []string{"cont"}, true},
		{"state whole", "postmigrate", []string{status("completed")}, rootsNew, []string{"cont"}, true},
		{"goes on already", "running", []string{status("completed")}, rootsNew, nil, true},
		{"its disk is full", "io-error", []string{status("failed")}, rootsNew, nil, true},
		{"its kernel panicked", "guest-panicked", []string{"{}"}, rootsOld, drop, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeQEMU{answers: map[string][]string{
				"query-status": {status(c.state)}, "query-migrate": c.transfer, "query-block": {c.roots},
				"blockdev-del": {"!", "{}"}, // the save may not have got that far
			}}
			r := fakeRun(t, f)
			if err := r.machine.tryEndSave(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(f.did, c.did) {
				t.Errorf("did %q, want %q", f.did, c.did)
			}
			want := []int{0, 2}
			if c.adopted {
				want = append(want, 3)
			}
			var noted vmConfig
			if err := readJSON(r.machine.dir, configFile, &noted); err != nil ||
				!slices.Equal(noted.Generations, want) ||
				noted.Saving != 0 {
				t.Errorf("noted %v, saving %d, %v; want %v", noted.Generations, noted.Saving, err, want)
			}
			if _, err := os.Stat(r.machine.overlayPath(1, 3)); (err == nil) != c.adopted {
				t.Errorf("the overlay: %v", err)
			}
			if err := r.machine.tryEndSave(t.Context(), r); err != nil || !slices.Equal(f.did, c.did) {
				t.Errorf("a second time: %q, %v", f.did, err)
			}
		})
	}
}

// A save that cannot be undone at first is undone later, for as long as QEMU lives.
func TestSettleAgain(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeQEMU{answers: map[string][]string{
				"query-status": {status("paused")}, "query-migrate": {"{}"}, "query-block": {rootsNew},
				"cont": {"!", "!", "!", "{}"},
			}}
			if dies {
				f.answers["cont"] = []string{"!"}
			}
			r := fakeRun(t, f)
			err := r.machine.endSave(t.Context(), r, errVMDeleted)
			if !errors.Is(err, errVMDeleted) || !strings.Contains(err.Error(), "undo the save") {
				t.Errorf("got %v", err)
			}
			time.Sleep(10 * time.Second)
			if dies {
				r.mu.Lock()
				r.qmp = nil
				r.mu.Unlock()
				close(r.exited)
			}
			r.machine.driver.watchers.Wait() // the tries end
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.did) != 4 && !dies || len(f.did) < 9 && dies || (r.machine.config.Saving == 0) == dies {
				t.Errorf("dies %v: did %q, saving %d", dies, f.did, r.machine.config.Saving)
			}
		})
	}
}

// What is left of a save when its VM has ended.
func TestSettleDead(t *testing.T) {
	for name, want := range map[string][]int{"whole": {0, 2, 3}, "one is missing": {0, 2}, "none is there": {0, 2}} {
		m := fakeRun(t, &fakeQEMU{}).machine
		for i := range 2 {
			if name == "none is there" || (name == "one is missing" && i == 0) {
				_ = os.Remove(m.overlayPath(i, 3))
			}
		}
		if err := m.endSaveOfStopped(); err != nil || !slices.Equal(m.generations(), want) || m.config.Saving != 0 {
			t.Errorf("%s: %v, saving %d, %v; want %v", name, m.generations(), m.config.Saving, err, want)
		}
		if _, err := os.Stat(m.overlayPath(1, 3)); (err == nil) != (len(want) == 3) {
			t.Errorf("%s: the other overlay: %v", name, err)
		}
	}
}

// A guest that does not run, or whose memory QEMU cannot save, is not paused.
func TestNotSavable(t *testing.T) {
	f := &fakeQEMU{answers: map[string][]string{"query-status": {status("suspended"), status("running")}}}
	r := fakeRun(t, f)
	if err := checkRunning(t.Context(), r.qmp); err == nil || !strings.Contains(err.Error(), `"suspended"`) {
		t.Errorf("a sleeping guest: %v", err)
	}
	if err := checkRunning(t.Context(), r.qmp); err != nil {
		t.Errorf("a running guest: %v", err)
	}
	blocked := `{"blocked-reasons": ["device x is in the way"]}`
	f = &fakeQEMU{answers: map[string][]string{"query-migrate": {blocked}, "qom-list": {"[]"}}}
	r = fakeRun(t, f)
	r.machine.config.Spec.Disks = nil
	if err := r.machine.passSaveFiles(t.Context(), r.qmp, 3, nil); !errors.Is(err, hv.ErrRefused) ||
		!strings.Contains(err.Error(), "device x") {
		t.Errorf("a device that cannot be saved: %v", err)
	}
	r.machine.config.Generations = make([]int, maxOverlays)
	if _, _, err := r.machine.beginSave(t.Context()); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("more overlays than possible: %v", err)
	}
}

func TestCancelableLock(t *testing.T) {
	turn, ctx := newCancelableLock(), t.Context()
	if err := turn.lock(ctx); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := turn.lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a taken turn: %v", err)
	}
	turn.unlock()
	if err := turn.lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a free turn, too late: %v", err)
	}
	if err := turn.lock(ctx); err != nil {
		t.Error(err)
	}
}
