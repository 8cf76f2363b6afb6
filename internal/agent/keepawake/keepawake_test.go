package keepawake

import (
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// startsFile is the environment variable with a file that gets a line for each start of the fake caffeinate: its
// process ID and its arguments.
const startsFile = "FAKE_CAFFEINATE"

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"caffeinate": caffeinate}) }

// caffeinate stands for the program of macOS: it records its start and runs until it is killed.
func caffeinate() {
	f, err := os.OpenFile(os.Getenv(startsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		os.Exit(1)
	}
	_, _ = f.WriteString(strings.Join(slices.Concat([]string{strconv.Itoa(os.Getpid())}, os.Args[1:]), " ") + "\n")
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt)
	<-end
	os.Exit(1)
}

// newAssertion returns an assertion and the starts of its caffeinate.
func newAssertion(t *testing.T) (a *Assertion, starts func() []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "starts")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(startsFile, file)
	a = New(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = a.Close() })
	return a, func() []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// processOf returns the caffeinate that runs; nil: none.
func processOf(a *Assertion) *child {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.child
}

func TestAssertion(t *testing.T) {
	a, starts := newAssertion(t)
	a.SetNeeded(false)
	if processOf(a) != nil {
		t.Error("caffeinate runs without need")
	}
	a.SetNeeded(true)
	a.SetNeeded(true)
	first := processOf(a)
	await(t, "the first start", func() bool { return len(starts()) == 1 })
	want := strconv.Itoa(first.cmd.Process.Pid) + " -i -w " + strconv.Itoa(os.Getpid())
	if got := starts()[0]; got != want {
		t.Errorf("started as %q, want %q", got, want)
	}
	a.SetNeeded(false)
	<-first.ended
	a.SetNeeded(true)
	second := processOf(a)
	await(t, "the second start", func() bool { return len(starts()) == 2 })
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-second.ended:
	default:
		t.Error("caffeinate runs after Close")
	}
	if a.SetNeeded(true); processOf(a) != nil || len(starts()) != 2 {
		t.Errorf("caffeinate was started after Close: %q", starts())
	}
}

// TestFailures: neither a caffeinate that ends nor a missing one is started again and again.
func TestFailures(t *testing.T) {
	a, starts := newAssertion(t)
	a.SetNeeded(true)
	first := processOf(a)
	await(t, "the start", func() bool { return len(starts()) == 1 })
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.ended
	a.SetNeeded(true)
	if processOf(a) != nil {
		t.Error("caffeinate was started again immediately")
	}
	a.mu.Lock()
	a.next = time.Now()
	a.mu.Unlock()
	a.SetNeeded(true)
	await(t, "the next start", func() bool { return len(starts()) == 2 })
	if err := a.Close(); err != nil {
		t.Error(err)
	}

	t.Setenv("PATH", t.TempDir())
	missing := New(slog.New(slog.DiscardHandler))
	missing.SetNeeded(true)
	if processOf(missing) != nil || missing.next.IsZero() {
		t.Error("a missing caffeinate runs, or is tried again immediately")
	}
}
