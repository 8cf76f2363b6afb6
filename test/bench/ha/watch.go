package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/loadgen"
)

// watcher notes when instances were first seen Started at a controller.
type watcher struct {
	stop    context.CancelFunc
	done    chan struct{}
	changed chan struct{} // one element when there is news

	mu   sync.Mutex
	seen map[string]time.Time
	err  error // why the watch ended
}

// watch follows the watch of a controller until close.
func watch(ctx context.Context, client *loadgen.Client) *watcher {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{
		stop: stop, done: make(chan struct{}), changed: make(chan struct{}, 1), seen: map[string]time.Time{},
	}
	go func() {
		defer close(w.done)
		err := client.WatchLines(ctx, loadgen.IncludeExisting, w.line)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
	return w
}

func (w *watcher) close() {
	w.stop()
	<-w.done
}

// line takes one line of the watch.
func (w *watcher) line(line []byte) error {
	var e struct {
		Instance struct {
			ID string `json:"instance_id"`
			VM struct {
				State string `json:"instance_state"`
			} `json:"vm"`
		} `json:"instance"`
	}
	now := time.Now()
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.Instance.VM.State != "Started" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.seen[e.Instance.ID]; !known {
		w.seen[e.Instance.ID] = now
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	return nil
}

// started waits until an instance was seen Started, and returns when that was.
func (w *watcher) started(ctx context.Context, id string) (time.Time, error) {
	timer := time.NewTimer(workLimit)
	defer timer.Stop()
	for {
		w.mu.Lock()
		at, known := w.seen[id]
		w.mu.Unlock()
		if known {
			return at, nil
		}
		select {
		case <-w.changed:
		case <-w.done:
			return time.Time{}, fmt.Errorf("the watch ended: %w", w.err)
		case <-timer.C:
			return time.Time{}, fmt.Errorf("instance %s was not Started within %s", id, workLimit)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// freeze stops a controller without ending it, so that it loses the lead.
func (c *controller) freeze() error { return syscall.Kill(c.PID(), syscall.SIGSTOP) }

// resume undoes freeze.
func (c *controller) resume() error { return syscall.Kill(c.PID(), syscall.SIGCONT) }
