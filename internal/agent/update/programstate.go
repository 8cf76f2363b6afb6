package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// programState defines which program runs as the agent. It is replaced as a whole.
type programState struct {
	// version of the program that was installed by other means
	BaseVersion      string         `json:"base"`
	BasePath         string         `json:"base_path"`         // its file
	ConfirmedVersion string         `json:"good,omitempty"`    // the version that has proved itself; "": the base
	PreviousVersion  string         `json:"before,omitempty"`  // the previous good version, which is kept, too
	Trial            *trial         `json:"trial,omitempty"`   // the version that has to prove itself
	Failure          *updateFailure `json:"failure,omitempty"` // to be reported to the controller
}

// trial is a version that has not reached its controller yet.
type trial struct {
	UpdateID   string `json:"id"` // of the update
	Version    string `json:"version"`
	StartCount int    `json:"starts"` // so far
}

// updateFailure is the result of a failed update.
type updateFailure struct {
	UpdateID string `json:"id"`
	Message  string `json:"message"`
}

// maxTrialStarts is how often a version that does not reach its controller is started. More than once,
// since the machine may have been switched off.
const maxTrialStarts = 3

// program is a program that may run as the agent.
type program struct {
	Version string
	Path    string
}

// chooseVersion returns the version to run when the base starts; "" is the base itself. If the base differs
// from that of the state it is always the one to run: an operator has installed it.
func (s programState) chooseVersion(self program) (next programState, version string) {
	if s.BaseVersion != self.Version {
		next = programState{BaseVersion: self.Version, BasePath: self.Path}
		if s.Trial != nil {
			next.Failure = &updateFailure{s.Trial.UpdateID, "another version was installed on the node: " +
				self.Version}
		}
		return next, ""
	}
	s.BasePath = self.Path
	switch {
	case s.Trial == nil:
		return s, s.ConfirmedVersion
	case s.Trial.StartCount >= maxTrialStarts:
		s.Failure = &updateFailure{
			s.Trial.UpdateID, fmt.Sprintf("the new agent was begun %d times and did not reach the controller",
				s.Trial.StartCount),
		}
		s.Trial = nil
		return s, s.ConfirmedVersion
	}
	t := *s.Trial
	t.StartCount++
	s.Trial = &t
	return s, t.Version
}

// withTrial returns the state in which a version has to prove itself. The running version stays good.
func (s programState) withTrial(id, version string) programState {
	s.Trial, s.Failure = &trial{UpdateID: id, Version: version, StartCount: 1}, nil
	return s
}

// withTrialConfirmed returns the state after a version on trial has reached its controller.
func (s programState) withTrialConfirmed() programState {
	s.ConfirmedVersion, s.PreviousVersion, s.Trial, s.Failure = s.Trial.Version, s.ConfirmedVersion, nil, nil
	return s
}

// withTrialFailed returns the state after a version on trial has not reached its controller.
func (s programState) withTrialFailed(message string) programState {
	s.Failure = &updateFailure{s.Trial.UpdateID, message}
	s.Trial = nil
	return s
}

// loadState reads the state. If it is missing or unreadable, load returns the zero state, with which the
// base runs.
func loadState(at datadir.Dir) (programState, error) {
	var s programState
	raw, err := os.ReadFile(at.UpdateStateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return programState{}, fmt.Errorf("read the update state: %w", err)
	}
	return s, nil
}

func (s programState) save(at datadir.Dir) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return datadir.WriteFile(at.UpdateStateFile(), append(raw, '\n'))
}
