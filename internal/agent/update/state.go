package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// state defines which program runs as the agent. It is replaced as a whole.
type state struct {
	Base     string   `json:"base"`              // version of the program that was installed by other means
	BasePath string   `json:"base_path"`         // its file
	Good     string   `json:"good,omitempty"`    // the version that has proved itself; "": the base
	Before   string   `json:"before,omitempty"`  // the previous good version, which is kept, too
	Trial    *trial   `json:"trial,omitempty"`   // the version that has to prove itself
	Failure  *failure `json:"failure,omitempty"` // to be reported to the controller
}

// trial is a version that has not reached its controller yet.
type trial struct {
	ID      string `json:"id"` // of the update
	Version string `json:"version"`
	Starts  int    `json:"starts"` // so far
}

// failure is the result of a failed update.
type failure struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

// maxStarts is how often a version that does not reach its controller is started. More than once,
// since the machine may have been switched off.
const maxStarts = 3

// program is a program that may run as the agent.
type program struct {
	Version string
	Path    string
}

// boot returns the version to run when the base starts; "" is the base itself. If the base differs
// from that of the state it is always the one to run: an operator has installed it.
func (s state) boot(self program) (next state, version string) {
	if s.Base != self.Version {
		next = state{Base: self.Version, BasePath: self.Path}
		if s.Trial != nil {
			next.Failure = &failure{s.Trial.ID, "another version was installed on the node: " + self.Version}
		}
		return next, ""
	}
	s.BasePath = self.Path
	switch {
	case s.Trial == nil:
		return s, s.Good
	case s.Trial.Starts >= maxStarts:
		s.Failure = &failure{
			s.Trial.ID, fmt.Sprintf("the new agent was begun %d times and did not reach the controller",
				s.Trial.Starts),
		}
		s.Trial = nil
		return s, s.Good
	}
	t := *s.Trial
	t.Starts++
	s.Trial = &t
	return s, t.Version
}

// try returns the state in which a version has to prove itself. The running version stays good.
func (s state) try(id, version string) state {
	s.Trial, s.Failure = &trial{ID: id, Version: version, Starts: 1}, nil
	return s
}

// confirmed returns the state after a version on trial has reached its controller.
func (s state) confirmed() state {
	s.Good, s.Before, s.Trial, s.Failure = s.Trial.Version, s.Good, nil, nil
	return s
}

// failed returns the state after a version on trial has not reached its controller.
func (s state) failed(message string) state {
	s.Failure = &failure{s.Trial.ID, message}
	s.Trial = nil
	return s
}

// load reads the state. If it is missing or unreadable, load returns the zero state, with which the
// base runs.
func load(at datadir.Dir) (state, error) {
	var s state
	raw, err := os.ReadFile(at.Update())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("read the update state: %w", err)
	}
	return s, nil
}

func (s state) save(at datadir.Dir) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return datadir.WriteFile(at.Update(), append(raw, '\n'))
}
