package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// state is which program runs as the agent. It is replaced whole.
type state struct {
	Base     string   `json:"base"`              // version of the program that was installed by other means
	BasePath string   `json:"base_path"`         // its file
	Good     string   `json:"good,omitempty"`    // the version that has proved itself; "": the base
	Before   string   `json:"before,omitempty"`  // the one before that, which stays too
	Trial    *trial   `json:"trial,omitempty"`   // the version that has to prove itself
	Failure  *failure `json:"failure,omitempty"` // what the controller has to be told
}

// trial is a version that has not reached its controller yet.
type trial struct {
	ID      string `json:"id"` // of the update
	Version string `json:"version"`
	Starts  int    `json:"starts"` // so far
}

// failure is how an update ended.
type failure struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

// maxStarts is how often a version is started that does not reach its controller. More
// than once: the machine may have been switched off.
const maxStarts = 3

// program is one that may run as the agent.
type program struct {
	Version string
	Path    string
}

// boot decides which version runs when the base begins; "" is the base itself. Another
// base than that which the state was made under wins over everything: somebody has
// installed it.
func (s state) boot(self program) (next state, version string) {
	if s.Base != self.Version {
		next = state{Base: self.Version, BasePath: self.Path}
		if s.Trial != nil {
			next.Failure = &failure{s.Trial.ID, "another version was installed on the node meanwhile: " + self.Version}
		}
		return next, ""
	}
	s.BasePath = self.Path
	switch {
	case s.Trial == nil:
		return s, s.Good
	case s.Trial.Starts >= maxStarts:
		s.Failure = &failure{s.Trial.ID, fmt.Sprintf("the new agent was begun %d times and did not reach the controller", s.Trial.Starts)}
		s.Trial = nil
		return s, s.Good
	}
	t := *s.Trial
	t.Starts++
	s.Trial = &t
	return s, t.Version
}

// try is the state in which a version has to prove itself. What runs stays good.
func (s state) try(id, version string) state {
	s.Trial, s.Failure = &trial{ID: id, Version: version, Starts: 1}, nil
	return s
}

// confirmed is the state after a version on trial has reached its controller.
func (s state) confirmed() state {
	s.Good, s.Before, s.Trial, s.Failure = s.Trial.Version, s.Good, nil, nil
	return s
}

// failed is the state after a version on trial has not.
func (s state) failed(message string) state {
	s.Failure = &failure{s.Trial.ID, message}
	s.Trial = nil
	return s
}

// load reads the state; a zero one when there is none. One that cannot be read is none as
// well: the base then runs, and begins again.
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
		return state{}, fmt.Errorf("which version is installed: %w", err)
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
