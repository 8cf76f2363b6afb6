// Package obs gives every program the same eyes: structured logs, metrics and the version it
// reports of itself.
//
// It is not the central log or the event log, and it keeps nothing.
//
// Invariant: a logger writes to the writer it was given, one JSON object a line;
// nothing here is global but the version.
package obs

import (
	"fmt"
	"io"
	"log/slog"
)

// Version and Commit are set by the linker; they stand for a build from a checkout.
var (
	Version = "0.1.0"
	Commit  = "devel"
)

// FullVersion gives X.Y.Z-<hash>, the form that clients of the API expect.
func FullVersion() string { return Version + "-" + Commit }

// Logger makes a logger of JSON lines. The level is debug, info, warn or error.
func Logger(w io.Writer, level, service string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: must be debug, info, warn or error", level)
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	return slog.New(h).With("service", service), nil
}
