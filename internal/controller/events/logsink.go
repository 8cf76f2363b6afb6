package events

import (
	"bytes"
	"context"
	"encoding/json"
)

// LogSink sends events to a log in batches, all of a batch or none.
type LogSink struct {
	// Write appends JSON objects, one per line.
	Write func(ctx context.Context, rows [][]byte) error
}

var _ Target = LogSink{}

// Send implements Target.
func (r LogSink) Send(ctx context.Context, events []EncodedEvent) ([]bool, error) {
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
