// Package obs provides structured logs, metrics and the version of a program.
//
// It is neither the central log nor the event log, and it stores nothing.
//
// Invariant: a logger writes to the writer it was given, one JSON object per line; only the version
// is global.
package obs

import (
	"fmt"
	"io"
	"log/slog"
)

// Logger returns a logger of JSON lines. The level is debug, info, warn or error.
func Logger(w io.Writer, level, service string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("invalid log level %q: want debug, info, warn or error", level)
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	return slog.New(h).With("service", service), nil
}
