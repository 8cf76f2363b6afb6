package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Changes made before a flush are known as soon as it returns, not eventually.
func TestFlushIsExact(t *testing.T) {
	each(t, func(t *testing.T, w *watched, dir string, sh func(string)) {
		for i := range 20 {
			sh(
				fmt.Sprintf(
					"mkdir -p d%d/e; echo 1 > d%[1]d/e/a.json; echo 1 > d%[1]d/b.json; echo 1 > c%[1]d.json; rm -f "+
						"c%d.json; mv d%[1]d m%[1]d", i, i-1))
			w.flush()
		}
	})
}

// flush flushes and compares.
func (w *watched) flush() {
	w.t.Helper()
	if err := w.w.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	want := listed(w.opts.Roots[0])
	w.mu.Lock()
	defer w.mu.Unlock()
	if !maps.Equal(want, w.files) {
		w.t.Fatalf("%d files are known of %d; last news %v", len(w.files), len(want), w.all[max(0, len(w.all)-20):])
	}
}

// An endless storm does not delay a flush.
func TestFlushInAStorm(t *testing.T) {
	each(t, func(t *testing.T, w *watched, dir string, _ func(string)) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ctx.Err() == nil; i++ {
				name := filepath.Join(dir, fmt.Sprintf("%d.json", i%5000))
				if os.WriteFile(name, []byte("{}"), 0o644) == nil && i%3 > 0 {
					_ = os.Remove(name)
				}
			}
		}()
		for range 5 {
			if err := w.w.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		cancel()
		<-ended
	})
}

func TestFlushEndsWithItsContextAndTheWatcher(t *testing.T) {
	w, err := openTuned(Options{Roots: []string{t.TempDir()}, Method: Inotify})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) { // Run does not run
		t.Error(err)
	}
	must(t, w.Close())
	if err := w.Flush(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
