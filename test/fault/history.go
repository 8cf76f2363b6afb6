package fault

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// op is the kind of a call to the controller.
type op string

// The calls that a history holds.
const (
	opCreate    op = "create"
	opTerminate op = "terminate"
	opLook      op = "look" // one instance, by id
	opList      op = "list" // every instance; one entry an instance that was seen or missed
	opSave      op = "save"
	opRestart   op = "restart"
	opRequest   op = "request" // one save request, by id
	opWatch     op = "watch"   // an event of a stream; it began when the stream was opened
)

// call is one call and what came of it. Times are since the history began, from the
// monotonic clock of this one process, so that calls can be ordered.
type call struct {
	Op         op            `json:"op"`
	Begin      time.Duration `json:"begin"`
	End        time.Duration `json:"end"`
	ExternalID string        `json:"external_id,omitempty"` // of a create; unique for every create
	Instances  []string      `json:"instances,omitempty"`   // that the call was about, or that it made
	Acked      bool          `json:"acked"`                 // the controller answered OK
	State      string        `json:"state,omitempty"`       // that a look saw; notFound when there was none
	// of the instance or request, or why there was no acknowledgement
	Message string `json:"message,omitempty"`
	// the controller said no, so that nothing came of the call
	Refused bool             `json:"refused,omitempty"`
	Request string           `json:"request,omitempty"` // the save request that was made or looked at
	Save    *saveExpectation `json:"save,omitempty"`    // what a save asked for
	// start date of the VM: before a restart, or as a look saw it
	Since  time.Time `json:"since,omitzero"`
	Node   string    `json:"node,omitempty"`   // of the instance, as it was seen
	Stream int       `json:"stream,omitempty"` // number of the stream of a watch, from 1
}

// notFound is the state of an instance or a request that a look or a list did not find.
const notFound = "(not found)"

// history is every call of a run, in the order in which the calls ended. A long one
// is kept in a file alone: see spill.go.
type history struct {
	start time.Time

	mu     sync.Mutex // guards the fields below
	calls  []call     // unless they are spilled
	spill  *callLog   // nil: they are in calls
	book   *ledger    // what the calls so far promise
	acks   int        // calls that change something and that the controller acknowledged, without repetitions
	failed map[string]bool
}

func newHistory() *history {
	return &history{start: time.Now(), book: newLedger(), failed: map[string]bool{}}
}

// now is the moment on the clock of the history.
func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) add(c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Acked && slices.Contains([]op{opCreate, opTerminate, opSave, opRestart}, c.Op) && !h.book.isRepeated(c) {
		h.acks++
	}
	h.book.note(c)
	if c.State == "Error" {
		for _, id := range c.Instances {
			h.failed[id] = true
		}
	}
	if h.spill != nil {
		h.spill.add(c)
		return
	}
	h.calls = append(h.calls, c)
}

// all returns every call so far of a history that is in memory.
func (h *history) all() []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.calls)
}

// acknowledged counts the calls that change something and that the controller acknowledged. A repetition may change
// nothing any more, and is not counted.
func (h *history) acknowledged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acks
}

// errored counts the instances that were ever seen in Error.
func (h *history) errored() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.failed)
}

// write writes the history to a file, for the analysis of a failure.
func (h *history) write(path string) (err error) {
	if h.spill != nil {
		return h.spill.close()
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	enc := json.NewEncoder(f)
	for _, c := range h.all() {
		if err := enc.Encode(c); err != nil {
			return fmt.Errorf("keep the history: %w", err)
		}
	}
	return nil
}
