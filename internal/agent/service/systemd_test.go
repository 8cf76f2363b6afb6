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

func TestParseUnitProperties(t *testing.T) {
	for name, want := range map[string]Status{
		"show-running.txt": {
			Loaded: true, Enabled: true, Running: true, State: "active (running)", PID: 4711, Restarts: 2,
		},
		"show-failed.txt": {Loaded: true, State: "activating (auto-restart)", LastExit: "signal 9", stale: true},
	} {
		got := parseUnitProperties(readFile(t, filepath.Join("testdata", name)))
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Status{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func FuzzParseUnitProperties(f *testing.F) {
	for _, name := range []string{"show-running.txt", "show-failed.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s := parseUnitProperties(text); s.PID < 0 || s.Restarts < 0 || s.Running != (s.PID > 0) {
			t.Errorf("%+v of %q", s, text)
		}
	})
}

func TestSystemd(t *testing.T) {
	ctx, state, units := t.Context(), stateDir(t), t.TempDir()
	t.Setenv(servicetest.UnitDirVariable, units)
	unit := NewSystemd(units)
	file := filepath.Join(units, "buildnode.service")
	if err := os.WriteFile(file, []byte("[Service]\nExecStart=/opt/own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload, restart := "systemctl daemon-reload", "systemctl restart buildnode.service"

	steps, err := unit.Install(ctx, definition)
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "first install", steps, []string{
		"replaced " + file + "; the former file is " + file + ".old", "enabled buildnode.service",
		"started buildnode.service",
	})
	expectLines(t, "calls of the first install", changingCalls(t, state), []string{
		reload, "systemctl enable buildnode.service", "systemctl reset-failed buildnode.service",
		"systemctl start buildnode.service",
	})
	if former := readFile(t, file+".old"); !strings.Contains(former, "/opt/own") {
		t.Errorf("the former unit was not kept: %s", former)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the unit has mode %v, %v", info.Mode(), err)
	}

	steps, err = unit.Install(ctx, definition)
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "second install", steps, []string{"buildnode.service is installed and runs; nothing was changed"})
	expectLines(t, "calls of the second install", changingCalls(t, state), nil)

	steps, err = unit.Install(ctx, changed())
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "changed install", steps, []string{"replaced " + file, "restarted buildnode.service"})
	expectLines(t, "calls of the changed install", changingCalls(t, state), []string{reload, restart})
	if running := readFile(t, filepath.Join(state, "running")); !strings.Contains(running, "--driver=sim") {
		t.Errorf("the former unit runs:\n%s", running)
	}

	// An install that was killed after it wrote the file is continued.
	text, err := unit.Render(definition)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = unit.Install(ctx, definition); err != nil {
		t.Fatal(err)
	}
	expectLines(t, "calls of the continued install", changingCalls(t, state), []string{reload, restart})
	if running := readFile(t, filepath.Join(state, "running")); !strings.Contains(running, "HTTPS_PROXY") {
		t.Errorf("the former unit runs:\n%s", running)
	}
}

func TestUninstallSystemd(t *testing.T) {
	ctx, state, units := t.Context(), stateDir(t), t.TempDir()
	t.Setenv(servicetest.UnitDirVariable, units)
	unit := NewSystemd(units)
	file := filepath.Join(units, "buildnode.service")
	if _, err := unit.Install(ctx, definition); err != nil {
		t.Fatal(err)
	}
	status, err := unit.Status(ctx)
	want := Status{
		Manager: "systemd", Name: "buildnode.service", File: file, Installed: true, Loaded: true, Enabled: true,
		Running: true, State: "active (running)", PID: servicetest.PID,
	}
	if d := cmp.Diff(want, status, cmpopts.IgnoreUnexported(Status{})); d != "" || err != nil {
		t.Errorf("status %v (-want +got):\n%s", err, d)
	}
	changingCalls(t, state)

	steps, err := unit.Uninstall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "uninstall", steps, []string{"stopped and disabled buildnode.service", "removed " + file})
	expectLines(t, "calls", changingCalls(t, state), []string{
		"systemctl disable --now buildnode.service", "systemctl daemon-reload",
	})
	if steps, err = unit.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	expectLines(t, "second uninstall", steps, []string{"buildnode.service is not installed"})
	expectLines(t, "calls of the second uninstall", changingCalls(t, state), nil)
}

func TestLogCommands(t *testing.T) {
	expectLines(t, "journal", NewSystemd("").LogCommand(LogOptions{Lines: 20, Follow: true}),
		strings.Fields("journalctl --unit buildnode.service --no-pager --lines 20 --follow"))
	expectLines(t, "file", NewLaunchd("", "/Users/admin", 501).LogCommand(LogOptions{Lines: 5}),
		strings.Fields("tail -n 5 /Users/admin/Library/Logs/buildnode.log"))
}

// TestNoServiceManager: the message names the program that is missing.
func TestNoServiceManager(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := NewSystemd(t.TempDir()).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "systemctl not found") {
		t.Errorf("got %v", err)
	}
}

// TestPackagedUnit: but for its comment, the unit of the package is the one that Install writes.
func TestPackagedUnit(t *testing.T) {
	packaged, err := PackagedUnit("/usr/bin/buildnode", "/var/lib/buildyard/node")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := NewSystemd("").Render(Definition{
		Program: "/usr/bin/buildnode", Args: []string{"run", "--data-dir", "/var/lib/buildyard/node"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, unit, _ := strings.Cut(string(packaged), "\n")
	_, want, _ := strings.Cut(string(installed), "\n")
	if unit != want || !strings.Contains(unit, "KillMode=process\n") {
		t.Errorf("the package has\n%s\nand Install writes\n%s", unit, want)
	}
	if strings.Contains(string(packaged), "service install") {
		t.Error("the unit of the package says that it was written by Install, which would replace it silently")
	}
}
