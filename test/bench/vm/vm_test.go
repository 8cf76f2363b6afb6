package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// log is a node's log with two VMs, other lines, and one that is being written.
const log = `{"time":"2026-01-02T03:04:05Z","msg":"started"}
not JSON
{"msg":"QEMU event","vm":"b","event":"VSERPORT_CHANGE","at":"2026-01-02T03:04:05.5Z","port":"qga0","open":true}
{"msg":"QEMU event","vm":"a","event":"RESUME","at":"2026-01-02T03:04:06Z","port":"","open":false}
{"msg":"QEMU event","vm":"a","event":"VSERPORT_CHANGE","at":"2026-01-02T03:04:07Z","port":"qga0","open":false}
{"msg":"QEMU event","vm":"a","event":"VSERPORT_CHANGE","at":"2026-01-02T03:04:08.000123Z","port":"qga0","open":true}
{"msg":"QEMU event","vm":"a","event":"VSERPORT_CHANGE","at":"2026-01-02T03:04:09Z","port":"qga0","open":true}
{"msg":"VM started","vm":"a"}
{"msg":"QEMU event","vm":"a","event":"STOP","at":"2026-01-02T03:05:00.100Z"}
{"msg":"QEMU event","vm":"a","event":"RESUME","at":"2026-01-02T03:05:00.165Z"}
{"msg":"VM saved","instance_id":"a","suspended":true,"took":2000000000,"pause":71000000}
{"msg":"VM saved","instance_id":"b","suspended":true,"took":2000000000,"pause":99000000}
{"msg":"QEMU event","vm":"a","event":"STO`

func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.log")
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := eventsOf(path, "a")
	if err != nil || len(events) != 6 {
		t.Fatalf("events are %v, %v", events, err)
	}
	ready, err := readyAt(events)
	if want := time.Date(2026, 1, 2, 3, 4, 8, 123000, time.UTC); err != nil || !ready.Equal(want) {
		t.Errorf("ready at %v, %v", ready, err)
	}
	if d, err := pauseOf(events); err != nil || d != 65*time.Millisecond {
		t.Errorf("stood still for %v, %v", d, err)
	}
	if _, err := readyAt(events[:2]); err == nil {
		t.Error("a guest whose agent never opened its port was ready")
	}
	stop := events[4]
	for name, bad := range map[string][]event{
		"never paused": events[:4], "never let go": events[:5], "paused twice": append(events, stop), "nothing": nil,
	} {
		if d, err := pauseOf(bad); err == nil {
			t.Errorf("%s: stood still for %v", name, d)
		}
	}
	if none, err := eventsOf(path, "c"); err != nil || len(none) != 0 {
		t.Errorf("events of an unknown VM are %v, %v", none, err)
	}
	if _, err := eventsOf(path+".none", "a"); err == nil {
		t.Error("a log that is not there was read")
	}
}

func TestStandstill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.log")
	for name, c := range map[string]struct {
		log  string
		want time.Duration
	}{
		"the driver says more": {log, 71 * time.Millisecond},
		"QEMU says more":       {strings.Replace(log, "71000000", "64000000", 1), 65 * time.Millisecond},
		"the agent is silent":  {strings.Replace(log, "VM saved", "VM", 1), 0},
		"QEMU is silent":       {strings.Replace(log, "STOP", "STEP", 1), 0},
	} {
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := standstillOf(path, "a")
		if (err == nil) != (c.want > 0) || (err == nil && s.longer() != c.want) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// TestOwn: the part of a start without QEMU and the guest is its beginning and its end.
func TestOwn(t *testing.T) {
	s := start{
		whole: 5 * time.Second, before: 40 * time.Millisecond, boot: 4900 * time.Millisecond,
		after: 60 * time.Millisecond,
	}
	if s.own() != s.before+s.after {
		t.Errorf("own part %v", s.own())
	}
	if got := s.String(); got != "5000 ms (100 own: 40 before QEMU, 60 after the guest was ready)" {
		t.Error(got)
	}
	if got := s.resumed(); got != "5000 ms (40 before QEMU, 60 after the guest went on)" {
		t.Error(got)
	}
}
