package qemu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// CompatOf is what a state of such a VM depends on.
var CompatOf = (*Driver).requirementsOf

// failing is a machine whose start has failed.
func failing(t *testing.T) *machine {
	t.Helper()
	d := &Driver{opts: Options{FailureLogDir: filepath.Join(t.TempDir(), "failed")}}
	m := &machine{
		driver: d, id: "vm-1", dir: t.TempDir(), config: vmConfig{Spec: hv.Spec{Name: "a\x1b[1mb"}, Version: "7.2.22"},
	}
	for name, text := range map[string]string{
		logFile:    strings.Repeat("x", 1<<20) + "last of QEMU\x1b[31m\r\n",
		serialFile: "first of console\n" + strings.Repeat("y", serialBufferBytes-40) + "\xff\x9bend\x07\n",
	} {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestFailedLog(t *testing.T) {
	m := failing(t)
	reason := errors.New("it would not start\x1b]0;x\x07")
	err := m.withFailureLog(reason)
	if !errors.Is(err, reason) {
		t.Fatalf("logged: %v", err)
	}
	_, path, _ := strings.Cut(err.Error(), "the complete log is in ")
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 3*qemuLogTailBytes {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	for _, want := range []string{
		"VM vm-1", "it would not start", "7.2.22", "last of QEMU", "first of console", "end\n",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if i := strings.IndexFunc(string(b),
		func(c rune) bool { return c != '\n' && c != '\t' && isControlRune(c) }); i >= 0 {
		t.Errorf("the log can steer a terminal: %q", b[i:min(i+10, len(b))])
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestFailureLog: the newest one of that VM only.
func TestFailureLog(t *testing.T) {
	m := failing(t)
	if b, err := m.driver.FailureLog("vm-1"); b != nil || err != nil {
		t.Errorf("no log: %q, %v", b, err)
	}
	_ = m.withFailureLog(errors.New("first"))
	time.Sleep(2 * time.Millisecond)
	_ = m.withFailureLog(errors.New("second"))
	other := *failing(t)
	other.driver, other.id = m.driver, "vm-1-check"
	_ = other.withFailureLog(errors.New("another VM"))
	if b, err := m.driver.FailureLog("vm-1"); !strings.Contains(string(b), "second") || err != nil {
		t.Errorf("%.200q, %v", b, err)
	}
	if b, err := m.driver.FailureLog("vm"); b != nil || err != nil {
		t.Errorf("of a VM with a shorter id: %.100q, %v", b, err)
	}
	m.lastEnd.Failure = "signal: killed"
	m.driver.machines = map[string]*machine{"vm-1": m}
	if b, err := m.driver.FailureLog("vm-1"); !strings.Contains(string(b), "signal: killed") ||
		!strings.Contains(string(b), "last of QEMU") || err != nil {
		t.Errorf("of one that has ended since: %.200q, %v", b, err)
	}
}

// A canceled start leaves no log, and one whose log cannot be stored fails with its own error.
func TestNoFailedLog(t *testing.T) {
	m := failing(t)
	for _, reason := range []error{context.Canceled, errClosed} {
		if err := m.withFailureLog(fmt.Errorf("x: %w", reason)); strings.Contains(err.Error(), "log is in") {
			t.Errorf("%v", err)
		}
	}
	if _, err := os.Stat(m.driver.opts.FailureLogDir); !os.IsNotExist(err) {
		t.Errorf("a log was kept: %v", err)
	}
	m.driver.log = slog.New(slog.DiscardHandler)
	m.driver.opts.FailureLogDir = filepath.Join(m.dir, logFile, "x")
	if err := m.withFailureLog(hv.ErrBootTimeout); err.Error() != hv.ErrBootTimeout.Error() {
		t.Errorf("%v", err)
	}
}
