package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// event is one of QEMU's events as the node's log has it. The time is QEMU's.
type event struct {
	VM   string    `json:"vm"`
	Name string    `json:"event"`
	At   time.Time `json:"at"`
	Port string    `json:"port"`
	Open bool      `json:"open"`
}

// eventsOf reads the events of one VM from the log of its node, in their order. Other
// lines, and one that is still being written, are none of ours.
func eventsOf(log, vm string) ([]event, error) {
	raw, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("read the node's log: %w", err)
	}
	var found []event
	for line := range bytes.Lines(raw) {
		var e event
		if json.Unmarshal(line, &e) == nil && e.VM == vm && e.Name != "" {
			found = append(found, e)
		}
	}
	return found, nil
}

// readyAt gives the time at which the guest's agent opened its port first.
func readyAt(events []event) (time.Time, error) {
	for _, e := range events {
		if e.Name == "VSERPORT_CHANGE" && e.Port == "qga0" && e.Open {
			return e.At, nil
		}
	}
	return time.Time{}, errors.New("the node's log has no event of the guest's agent")
}

// standstill gives how long the guest was paused, of its one pause.
func standstill(events []event) (time.Duration, error) {
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
