package host

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestTheClockIsSetBack: a package that came since the last start of a scan is reported as new,
// although it came before that start by the clock.
func TestTheClockIsSetBack(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.end()
	ahead := wallClock().Add(time.Hour)
	m, err := loadState(b.stateFile())
	if err != nil {
		t.Fatal(err)
	}
	m.LastStart = ahead
	if err := m.save(b.stateFile()); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.npm("a", "1.0.0")
	b.expect("npm a 1.0.0 node_modules/a/package.json")
	since := b.Status().LastStart
	if got := b.list(Query{Since: since}); !since.Equal(ahead) || len(got) != 1 {
		t.Errorf("since %s: %q", since, got)
	}
	b.full() // a start by the current clock
	b.npm("b", "1.0.0")
	b.full()
	if since = b.Status().LastStart; !since.Before(ahead) {
		t.Errorf("the last start is %s still", since)
	}
	if got := strings.Join(b.list(Query{Since: since}), "\n"); !strings.Contains(got, "npm b") {
		t.Errorf("since %s: %q", since, got)
	}
}

// TestTheClockIsSetBackDuringAJob: a report may be incomplete when real-time scanning began again during the job,
// whatever the clock shows.
func TestTheClockIsSetBackDuringAJob(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.mark("job", "")
	b.Host.mu.Lock()
	b.saved.Marks[0].Created = wallClock().Add(time.Hour)
	b.Host.mu.Unlock()
	b.stopped()
	if err := b.watchRoot(b.dir); err != nil {
		t.Fatal(err)
	}
	if gap := b.Gap(b.Marks()[0]); !strings.Contains(gap, "did not run all the time") {
		t.Errorf("gap %q", gap)
	}
}

// TestCallsComeBeforeTheScannerContinues: they wait, and begin nothing twice.
func TestCallsComeBeforeTheScannerContinues(t *testing.T) {
	b := newBench(t, nil)
	b.end()
	h, err := Open(b.options)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := h.FullScan(FullScanOptions{Path: b.dir})
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a full scan began before the scanner: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
