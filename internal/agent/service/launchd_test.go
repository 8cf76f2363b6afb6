package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/buildyard/buildyard/internal/agent/service/servicetest"
)

func TestParseLaunchdService(t *testing.T) {
	for name, want := range map[string]Status{
		"print-running.txt": {Loaded: true, Running: true, State: "running", PID: 612, LastExit: "1", Restarts: 2},
		"print-stopped.txt": {Loaded: true, State: "spawn scheduled", LastExit: "78"},
	} {
		got := parseLaunchdService(readFile(t, filepath.Join("testdata", name)))
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Status{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func FuzzParseLaunchdService(f *testing.F) {
	for _, name := range []string{"print-running.txt", "print-stopped.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s := parseLaunchdService(text); s.PID < 0 || s.Restarts < 0 || s.Running && s.State != "running" {
			t.Errorf("%+v of %q", s, text)
		}
	})
}

const (
	target    = "gui/501/io.github.buildyard.buildnode"
	enable    = "launchctl enable " + target
	bootout   = "launchctl bootout " + target
	kickstart = "launchctl kickstart " + target
	loaded    = "loaded io.github.buildyard.buildnode into gui/501: it runs now, and after each login"
)

// newLaunchd returns the service of a user with an empty home directory, its file and the call that loads it.
func newLaunchd(t *testing.T) (l *Launchd, file, bootstrap string) {
	t.Helper()
	home := t.TempDir()
	file = filepath.Join(home, "Library", "LaunchAgents", "io.github.buildyard.buildnode.plist")
	return NewLaunchd("", home, 501), file, "launchctl bootstrap gui/501 " + file
}

func TestLaunchd(t *testing.T) {
	ctx, state := t.Context(), stateDir(t)
	l, file, bootstrap := newLaunchd(t)
	put(t, state, "disabled "+Label)

	for _, c := range []struct {
		name         string
		definition   Definition
		knob         string // of the fake
		steps, calls []string
	}{
		{"first install", definition, "", []string{"wrote " + file, loaded}, []string{enable, bootstrap}},
		{
			"second install", definition, "",
			[]string{"io.github.buildyard.buildnode is installed and runs; nothing was changed"},
			nil,
		},
		{
			"install of a stopped service", definition, servicetest.Stopped,
			[]string{"started io.github.buildyard.buildnode"},
			[]string{kickstart},
		},
		{
			"changed install", changed(), servicetest.SlowRemoval,
			[]string{"stopped the former io.github.buildyard.buildnode", "replaced " + file, loaded},
			[]string{bootout, enable, bootstrap},
		},
	} {
		if c.knob != "" {
			put(t, state, c.knob)
		}
		steps, err := l.Install(ctx, c.definition)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		expectLines(t, c.name, steps, c.steps)
		expectLines(t, "calls of "+c.name, changingCalls(t, state), c.calls)
	}
	if text := readFile(t, file); !strings.Contains(text, "--driver=sim") {
		t.Errorf("the file was not replaced:\n%s", text)
	}
}

func TestUninstallLaunchd(t *testing.T) {
	ctx, state := t.Context(), stateDir(t)
	l, file, _ := newLaunchd(t)
	if _, err := l.Install(ctx, definition); err != nil {
		t.Fatal(err)
	}
	status, err := l.Status(ctx)
	want := Status{
		Manager: "launchd", Name: Label, File: file, Installed: true, Loaded: true, Enabled: true, Running: true,
		State: "running", PID: servicetest.PID, LastExit: "1", Restarts: 2,
	}
	if d := cmp.Diff(want, status, cmpopts.IgnoreUnexported(Status{})); d != "" || err != nil {
		t.Errorf("status %v (-want +got):\n%s", err, d)
	}
	changingCalls(t, state)
	steps, err := l.Uninstall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "uninstall", steps, []string{"stopped io.github.buildyard.buildnode", "removed " + file})
	expectLines(t, "calls", changingCalls(t, state), []string{bootout})
	if steps, err = l.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	expectLines(t, "second uninstall", steps, []string{"io.github.buildyard.buildnode is not installed"})
	if status, err = l.Status(ctx); err != nil || status.Installed || status.Loaded || status.Running {
		t.Errorf("status %+v, %v", status, err)
	}
}

// TestNoGraphicalSession: the file is kept for the next login, and the message says what to do.
func TestNoGraphicalSession(t *testing.T) {
	put(t, stateDir(t), servicetest.NoSession)
	l, file, _ := newLaunchd(t)
	steps, err := l.Install(t.Context(), definition)
	if err == nil || !strings.Contains(err.Error(), "enable automatic login") {
		t.Errorf("got %v", err)
	}
	expectLines(t, "steps", steps, []string{"wrote " + file})
}
