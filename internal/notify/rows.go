package notify

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/buildyard/buildyard/internal/controller"
)

// LogSink sends events to a log in batches, all of a batch or none.
type LogSink struct {
	// Write appends JSON objects, one per line.
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

// Array returns rows as one JSON array, the form that a registry's log server accepts.
func Array(rows [][]byte) json.RawMessage {
	return append(append([]byte("["), bytes.Join(rows, []byte(","))...), ']')
}
