package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/buildyard/buildyard/test/bench/runner"
)

// event is one of QEMU's events as the node's log has it. The time is QEMU's.
type event struct {
	VM   string    `json:"vm"`
	Name string    `json:"event"`
	At   time.Time `json:"at"`
	Port string    `json:"port"`
	Open bool      `json:"open"`
}

// savedLine is the agent's log line about a save: how long the driver paused the guest.
type savedLine struct {
	Message  string        `json:"msg"`
	Instance string        `json:"instance_id"`
	Pause    time.Duration `json:"pause"`
}

// eventsOf reads the events of one VM from the log of its node, in their order. Other
// lines, and one that is still being written, are none of ours.
func eventsOf(log, vm string) ([]event, error) {
	return linesOf(log, func(e event) bool { return e.VM == vm && e.Name != "" })
}

// linesOf reads the lines of a log that have the form of a T and are wanted.
func linesOf[T any](log string, want func(T) bool) ([]T, error) {
	raw, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("read the node's log: %w", err)
	}
	var found []T
	for line := range bytes.Lines(raw) {
		var t T
		if json.Unmarshal(line, &t) == nil && want(t) {
			found = append(found, t)
		}
	}
	return found, nil
}

// readyAt returns the time at which the guest's agent opened its port first.
func readyAt(events []event) (time.Time, error) {
	for _, e := range events {
		if e.Name == "VSERPORT_CHANGE" && e.Port == "qga0" && e.Open {
			return e.At, nil
		}
	}
	return time.Time{}, errors.New("the node's log has no event of the guest's agent")
}

// standstill is how long a guest stood still for a save, by two clocks.
type standstill struct {
	qemu   time.Duration // between QEMU's STOP and RESUME
	driver time.Duration // as the driver measured it
}

// longer is the one that counts.
func (s standstill) longer() time.Duration { return max(s.qemu, s.driver) }

func (s standstill) String() string {
	return fmt.Sprintf("%.0f ms by QEMU, %.0f ms by the driver", runner.MS(s.qemu), runner.MS(s.driver))
}

// standstillOf returns how long the guest of a VM stood still for its one save.
func standstillOf(log, vm string) (s standstill, err error) {
	events, err := eventsOf(log, vm)
	if err != nil {
		return s, err
	}
	if s.qemu, err = pauseOf(events); err != nil {
		return s, err
	}
	saves, err := linesOf(log, func(l savedLine) bool { return l.Message == "VM saved" && l.Instance == vm })
	if err == nil && len(saves) != 1 {
		err = fmt.Errorf("the node's log has %d saves of the VM, one was expected", len(saves))
	}
	if err != nil {
		return s, err
	}
	s.driver = saves[0].Pause
	return s, nil
}

// pauseOf returns how long the guest was paused, of its one pause.
func pauseOf(events []event) (time.Duration, error) {
	var stop, resume time.Time
	stops := 0
	for _, e := range events {
		switch {
		case e.Name == "STOP":
			stop, stops = e.At, stops+1
		case e.Name == "RESUME" && stops > 0 && resume.IsZero():
			resume = e.At
		}
	}
	if stops != 1 || resume.Before(stop) {
		return 0, fmt.Errorf("the node's log has %d pauses of the VM, one that ended was expected", stops)
	}
	return resume.Sub(stop), nil
}
