package storetest

import (
	"fmt"
	"maps"
	"sync"

	"github.com/buildyard/buildyard/internal/store"
)

// recorder keeps the events of a subscriber and checks each against the one before it.
type recorder struct {
	mu     sync.Mutex
	state  map[string]Record // kind/id -> state by the events so far
	revs   map[string]int64
	faults []string
}

func newRecorder() *recorder {
	return &recorder{state: map[string]Record{}, revs: map[string]int64{}}
}

func (r *recorder) add(events []store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range events {
		if _, ours := ev.Old.(*Record); !ours {
			if _, ours = ev.New.(*Record); !ours {
				continue
			}
		}
		r.addLocked(ev)
	}
}

func (r *recorder) addLocked(ev store.Event) {
	key := string(ev.Kind) + "/" + ev.ID
	if ev.Rev <= r.revs[key] {
		r.faults = append(r.faults, fmt.Sprintf("%s: revision %d after %d", key, ev.Rev, r.revs[key]))
	}
	r.revs[key] = ev.Rev
	before, known := r.state[key]
	if old, ok := ev.Old.(*Record); ok != known || (ok && *old != before) {
		r.faults = append(r.faults, fmt.Sprintf("%s at %d: Old is %v, the event before said %v (%v)", key, ev.Rev,
			ev.Old, before, known))
	}
	if now, ok := ev.New.(*Record); ok {
		r.state[key] = *now
	} else {
		delete(r.state, key)
	}
}

// result returns the state that the events add up to, and the errors in them.
func (r *recorder) result() (state map[string]Record, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.state), r.faults
}
