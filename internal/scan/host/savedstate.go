package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

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

// save writes the whole state.
func (m *savedState) save(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
