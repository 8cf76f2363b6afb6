// Package journal keeps what a node has promised: one entry for every instance
// order that it accepted, and how far it is with it, so that a killed agent continues
// where it was.
//
// It is not the state machine (package agent has the table) and holds no image and
// no VM. Two implementations: Dir on disk, Memory for simulated nodes.
//
// Invariant: when Accept or Save has returned nil, a kill at any later moment
// leaves an entry that Load gives back whole; when Remove has returned nil, none.
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

// Entry is everything a node knows of one instance.
type Entry struct {
	// Node is the id under which the node accepted the order; "" in entries of
	// programs that did not say so.
	Node string
	// Order is what was accepted. An instance that the node was only ever told to
	// terminate has the terminate order here.
	Order api.Order
	State State
}

// State is how far the node is. It is written whole.
type State struct {
	// No is the number of the last status. On disk it is a number that no status
	// has reached yet, so that numbers grow across a crash without a write for each.
	No int64 `json:"no"`
	// Claim is the claim that statuses carry: the order's, or that of a later
	// terminate order.
	Claim string    `json:"claim"`
	Phase api.Phase `json:"phase"`
	// Ending says that the instance is to go; it never becomes false again.
	Ending bool `json:"ending,omitempty"`
	// Silent says that the controller disowned the instance: it goes unreported.
	Silent bool `json:"silent,omitempty"`
	// ScriptBegun is set before the startup script runs. With no Script beside it
	// after a restart, the outcome is unknown.
	ScriptBegun bool              `json:"script_begun,omitempty"`
	Message     string            `json:"message,omitempty"`
	VM          *api.NodeVM       `json:"vm,omitempty"`
	Script      *api.ScriptStatus `json:"script,omitempty"`
	// Task is the last save or restart that was ordered. It is never changed, only
	// replaced, so that copies of a State may share it.
	Task *Task `json:"task,omitempty"`
}

// numbers is how many statuses may follow a durable state before the next one.
const numbers = 1 << 16

// idForm is what an instance id may look like: it becomes a directory name. Ids are
// UUIDs, but an orphaned VM is ordered away by whatever id it has.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID refuses an instance id that cannot be a directory name.
func CheckID(id string) error {
	if !idForm.MatchString(id) {
		return farm.Invalid("instance_id", "%q has other characters than letters, digits, '.', '_' and '-'", id)
	}
	return nil
}

// Reserved reports whether no is still below the numbers that the last Save, of a state
// with number saved, has set aside. Beyond it the state has to be saved again.
func Reserved(no, saved int64) bool { return no < saved+numbers }

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
		e.State.No += numbers
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
		return fmt.Errorf("journal has no instance %s", id)
	}
	e.State = s
	m.entries[id] = e
	return nil
}

// Remove forgets an entry; removing an unknown one is no error.
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
