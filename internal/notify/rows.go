package notify

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/buildyard/buildyard/internal/controller"
)

// LogSink gives events to a log that takes them many at a time, all or none.
type LogSink struct {
	// Write appends JSON objects, one a line.
	Write func(ctx context.Context, rows [][]byte) error
}

var _ controller.EventTarget = LogSink{}

// Send implements controller.EventTarget.
func (r LogSink) Send(ctx context.Context, events []controller.SentEvent) ([]bool, error) {
	arrived, rows := make([]bool, len(events)), make([][]byte, len(events))
	for i, event := range events {
		rows[i] = event.Record
	}
	if err := r.Write(ctx, rows); err != nil {
		return arrived, err
	}
	for i := range arrived {
		arrived[i] = true
	}
	return arrived, nil
}

// Array gives rows as one JSON array, the form in which a registry's log server takes them.
func Array(rows [][]byte) json.RawMessage {
	return append(append([]byte("["), bytes.Join(rows, []byte(","))...), ']')
}
