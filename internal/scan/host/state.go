package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/scan/host/unread"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// State is the activity of the host scanner.
type State string

// The states, as the specification spells them.
const (
	Idle        State = "Idle"
	RealTime    State = "Real-Time"
	RunningFull State = "Running Full"
)

// trigger is an event that may change the state.
type trigger string

const (
	triggerFullScan    trigger = "start a full scan"
	triggerRealTime    trigger = "start real-time scanning"
	triggerStop        trigger = "stop"
	triggerReset       trigger = "reset"
	triggerFullScanEnd trigger = "the full scan ends"
)

// condition is an additional condition of a transition.
type condition string

const (
	unconditional   condition = ""
	withPath        condition = "with a path"
	noPath          condition = "without a path"
	realTimeFollows condition = "real-time ran before or was asked for"
	nothingFollows  condition = "nothing was asked to follow"
)

// transition is a row of the table.
type transition struct {
	From      State
	Trigger   trigger
	Condition condition
	To        State
}

// transitions lists every transition. Others are refused: during a full scan a second one is, and
// real-time scanning with a path, which begins with one.
var transitions = []transition{
	{Idle, triggerFullScan, unconditional, RunningFull},
	{Idle, triggerRealTime, noPath, RealTime},
	{Idle, triggerRealTime, withPath, RunningFull},
	{Idle, triggerStop, unconditional, Idle},
	{Idle, triggerReset, unconditional, Idle},

	{RealTime, triggerFullScan, unconditional, RunningFull},
	{RealTime, triggerRealTime, noPath, RealTime},
	{RealTime, triggerRealTime, withPath, RunningFull},
	{RealTime, triggerStop, unconditional, Idle},
	{RealTime, triggerReset, unconditional, RealTime},

	{RunningFull, triggerRealTime, noPath, RunningFull}, // real-time follows it
	{RunningFull, triggerStop, unconditional, Idle},     // it is canceled
	{RunningFull, triggerReset, unconditional, RunningFull},
	{RunningFull, triggerFullScanEnd, realTimeFollows, RealTime},
	{RunningFull, triggerFullScanEnd, nothingFollows, Idle},
}

// nextState returns the state that follows, and false where none does.
func nextState(from State, by trigger, c condition) (State, bool) {
	for _, t := range transitions {
		if t.From == from && t.Trigger == by && (t.Condition == unconditional || t.Condition == c) {
			return t.To, true
		}
	}
	return from, false
}

// savedState is what a scanner resumes after a restart. It is in its own file, so that a damaged
// inventory does not destroy it.
type savedState struct {
	State        State     `json:"state"`            // Idle or RealTime: what continues when no full scan runs
	Path         string    `json:"path,omitempty"`   // of real-time scanning; "" is the whole host
	WatchedSince time.Time `json:"watched,omitzero"` // when that began
	// BaselineKnown reports whether the files that were present when it began are known, so that unknown
	// files are new ones.
	BaselineKnown bool         `json:"noted,omitempty"`
	FullScan      *scanRequest `json:"full,omitempty"` // a full scan that has not ended
	LastStart     time.Time    `json:"since,omitzero"` // last start of a scan
	ResetAt       time.Time    `json:"reset,omitzero"`
	LastResult    *ScanResult  `json:"last,omitempty"`
	Marks         []Mark       `json:"marks,omitempty"` // the oldest first

	// Missing are the kinds and releases that matches found no advisories for: packages are not matched again after a
	// restart.
	Missing []match.NoAdvisories `json:"missing,omitempty"`

	Unread unread.List `json:"unread,omitzero"`
}

// scanRequest is a requested full scan.
type scanRequest struct {
	Path    string    `json:"path,omitempty"` // "" is the whole host
	Started time.Time `json:"started"`
}

// loadState reads the state from a file; a missing file is the state of a new scanner.
func loadState(path string) (savedState, error) {
	m := savedState{State: Idle}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read the saved scan state: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil || m.State != RealTime && m.State != Idle {
		return savedState{State: Idle}, fmt.Errorf("%s has no valid scan state; the scanner starts idle", path)
	}
	return m, nil
}

// save writes the whole state. The new file has the same name each time, so that killed processes leave no more than
// one.
func (m *savedState) save(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
