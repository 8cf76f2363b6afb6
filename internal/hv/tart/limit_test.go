//go:build linux

package tart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv/clitest"
)

// TestGuestLimit: a refusal that no guest explains is a problem of the Mac until a start succeeds.
func TestGuestLimit(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	m.setKnob("limit", "0")
	d := m.open(m.options())
	s := m.spec()
	if p := d.Problem(); p != "" {
		t.Errorf("problem before the first start: %q", p)
	}
	if _, err := d.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), limitProblem) {
		t.Errorf("Start: %v, want %q", err, limitProblem)
	}
	if p := d.Problem(); p != limitProblem {
		t.Errorf("problem %q, want %q", p, limitProblem)
	}

	m.setKnob("limit", "2")
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Error(err)
	}
	if p := d.Problem(); p != "" {
		t.Errorf("problem after a start: %q", p)
	}
}

// TestOtherMacOSGuests: guests that run for other programs are counted, those of the driver and those that are stopped
// are not.
func TestOtherMacOSGuests(t *testing.T) {
	m := newMac(t)
	home := filepath.Join(m.root, "user")
	t.Setenv("TART_HOME", home)
	m.setKnob("limit", "9")
	d := m.open(m.options())
	if _, err := d.Start(t.Context(), m.spec()); err != nil {
		t.Fatal(err)
	}
	if n := d.OtherMacOSGuests(); n != 0 {
		t.Errorf("%d guests of other programs", n)
	}
	m.runOther(d.opts.Home, "same-home", "52:54:00:00:00:01")
	m.runOther(home, "own-home", "52:54:00:00:00:02")
	if err := os.MkdirAll(filepath.Join(home, vmsDir, "stopped"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := d.OtherMacOSGuests(); n != 2 {
		t.Errorf("%d guests of other programs, want 2", n)
	}
}

// TestGuestLimitByOtherProgram: guests of another program explain a refusal.
func TestGuestLimitByOtherProgram(t *testing.T) {
	m := newMac(t)
	programs := filepath.Join(m.root, "programs")
	if err := os.Mkdir(programs, 0o700); err != nil {
		t.Fatal(err)
	}
	ps := "#!/bin/sh\necho /sbin/launchd\necho /System/Library/Frameworks/Virtualization.framework/Versions/A/" +
		"XPCServices/" + guestProcess + ".xpc/Contents/MacOS/" + guestProcess + "\n"
	clitest.WriteScript(t, filepath.Join(programs, "ps"), ps)
	t.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
	m.setKnob("limit", "0")
	d := m.open(m.options())
	want := "those of other programs included"
	if _, err := d.Start(t.Context(), m.spec()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Start: %v, want %q", err, want)
	}
	if p := d.Problem(); p != "" {
		t.Errorf("problem %q", p)
	}
}

// TestGuestLimitAge: a refusal counts for a limited time, after which starts are attempted again.
func TestGuestLimitAge(t *testing.T) {
	t.Parallel()
	var l guestLimit
	now := time.Now()
	l.record(now)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, limitProblem}, {limitProblemAge - 1, limitProblem}, {limitProblemAge, ""}} {
		if p := l.problem(now.Add(c.after)); p != c.want {
			t.Errorf("after %s: %q, want %q", c.after, p, c.want)
		}
	}
}

func TestHasGuestProcess(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]bool{
		"":                                 false,
		"/sbin/launchd\n":                  false,
		"/x/" + guestProcess + ".xpc\n":    false,
		"/a\n/x/MacOS/" + guestProcess:     true,
		"  " + guestProcess + "  \n/bin/x": true,
	} {
		if got := hasGuestProcess(names); got != want {
			t.Errorf("%q: %t, want %t", names, got, want)
		}
	}
}
