// Package journal stores a node's obligations: one entry for every accepted instance order, with
// its progress, so that a killed agent resumes where it was.
//
// It is not the state machine (package agent has the table) and stores neither images nor VMs. Two
// implementations: Dir on disk, Memory for simulated nodes.
//
// Invariant: when Accept or Save has returned nil, a kill at any later moment leaves an entry that
// Load returns completely; when Remove has returned nil, it leaves none.
package journal

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Entry contains everything a node knows about one instance.
type Entry struct {
	// NodeID is the ID under which the node accepted the order; "" in entries of versions that did
	// not record it.
	NodeID string
	// Order is the accepted order. For an instance that the node was only ordered to terminate, it
	// is the terminate order.
	Order api.Order
	State State
}

// CurrentOrder returns the order that is in effect: that of the last takeover, or the accepted one.
func (e Entry) CurrentOrder() api.Order {
	if e.State.TakenOver != nil {
		return *e.State.TakenOver
	}
	return e.Order
}

// State is the progress of an instance. It is always written completely.
type State struct {
	// Number is the number of the last status. On disk it is a number that no status has reached yet,
	// so that numbers grow across a crash without a write for each.
	Number int64 `json:"no"`
	// Claim is the claim that statuses carry: the order's, or that of a later
	// terminate order.
	Claim string    `json:"claim"`
	Phase api.Phase `json:"phase"`
	// Ending reports whether the instance is to be terminated; it never becomes false again.
	Ending bool `json:"ending,omitempty"`
	// Silent reports whether the controller disowned the instance: its end is not reported.
	Silent bool `json:"silent,omitempty"`
	// ScriptBegun is set before the startup script runs. If Script is nil after a restart, the
	// result is unknown.
	ScriptBegun bool   `json:"script_begun,omitempty"`
	Message     string `json:"message,omitempty"`
	// Failure classifies Message in the phases Failed, Stopped and Vanished.
	Failure *api.NodeFailure  `json:"failure,omitempty"`
	VM      *api.NodeVM       `json:"vm,omitempty"`
	Script  *api.ScriptStatus `json:"script,omitempty"`
	// Task is the last save or restart that was ordered. It is never changed, only replaced, so
	// that copies of a State may share it.
	Task *Task `json:"task,omitempty"`
	// TakenOver is the start order by which a start took over the VM of a standby; it replaces the order of the
	// entry. It is part of the state, so that claim and order change in one durable step. It is never changed.
	TakenOver *api.Order `json:"taken_over,omitempty"`
}

// StateOfTakeover returns the state of a standby after the order o has taken its VM over. A VM that runs or boots
// continues; otherwise the instance is started as if it was new.
func (s State) StateOfTakeover(o *api.Order) State {
	next := State{Number: s.Number + 1, Claim: o.Claim, Phase: api.PhaseAccepted, VM: s.VM, TakenOver: o}
	switch s.Phase {
	case api.PhaseStarting:
		next.Phase = api.PhaseStarting
	case api.PhaseRunning, api.PhaseScriptOK:
		next.Phase = api.PhaseRunning
	}
	return next
}

// numbersPerSave is the number of statuses that may follow a durable state before the next one.
const numbersPerSave = 1 << 16

// instanceIDPattern is the form of an instance ID: it becomes a directory name. IDs are UUIDs, but an orphaned
// VM is terminated by whatever ID it has.
var instanceIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID refuses an instance id that cannot be a directory name.
func CheckID(id string) error {
	if !instanceIDPattern.MatchString(id) {
		return farm.Invalid("instance_id", "%q: only letters, digits, '.', '_' and '-' are allowed", id)
	}
	return nil
}

// IsNumberReserved reports whether no is still below the numbers that the last Save, of a state
// with number saved, has set aside. Beyond it the state has to be saved again.
func IsNumberReserved(no, saved int64) bool { return no < saved+numbersPerSave }

// Memory is a journal that lives as long as the process. The zero value is empty
// and ready. It may be used from many goroutines.
type Memory struct {
	mu      sync.Mutex
	entries map[string]Entry // instance id -> entry
}

// Load returns every entry, ordered by instance id.
func (m *Memory) Load() ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Entry, 0, len(m.entries))
	for _, e := range m.entries {
		e.State.Number += numbersPerSave
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Order.InstanceID, b.Order.InstanceID) })
	return out, nil
}

// Accept adds an entry.
func (m *Memory) Accept(e Entry) error {
	if err := CheckID(e.Order.InstanceID); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[string]Entry{}
	}
	m.entries[e.Order.InstanceID] = e
	return nil
}

// Save replaces the state of an entry.
func (m *Memory) Save(id string, s State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok {
		return fmt.Errorf("instance %s not found in the journal", id)
	}
	e.State = s
	m.entries[id] = e
	return nil
}

// Remove removes an entry; removing an unknown one succeeds.
func (m *Memory) Remove(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, id)
	return nil
}

func decode(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode journal file: %w", err)
	}
	return nil
}
