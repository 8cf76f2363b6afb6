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

// Version and Commit are set by the linker; they stand for a build from a checkout.
var (
	Version = "0.1.0"
	Commit  = "devel"
)

// FullVersion returns X.Y.Z-<hash>, the form that clients of the API expect.
func FullVersion() string { return Version + "-" + Commit }

// Logger returns a logger of JSON lines. The level is debug, info, warn or error.
func Logger(w io.Writer, level, service string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("invalid log level %q: want debug, info, warn or error", level)
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	return slog.New(h).With("service", service), nil
}
