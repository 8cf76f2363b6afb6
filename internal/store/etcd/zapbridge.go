package etcd

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapBridge is a zap core that writes warnings and worse to slog; etcd supports no other logger.
type zapBridge struct {
	log       *slog.Logger
	fields    []zapcore.Field
	onMessage func(message string) // of every message that is logged; may be nil
}

var _ zapcore.Core = zapBridge{}

// zapLogger returns a logger for etcd. A fatal message panics instead of ending the process
// immediately, so that a start can fail with an error and deferred functions run.
func zapLogger(log *slog.Logger) *zap.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return zap.New(zapBridge{log: log}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// noSegmentMessage is etcd's log message when it could not allocate its next log file.
const noSegmentMessage = "failed to preallocate space when creating a new WAL"

// memberLogger returns a logger for a member whose fatal messages are its failure.
func memberLogger(log *slog.Logger, f *memberFailure, g *diskGuard) *zap.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	heard := func(message string) {
		if g != nil && message == noSegmentMessage {
			g.recordSegmentFailure()
		}
	}
	return zap.New(zapBridge{log: log, onMessage: heard}, zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// ignoredWarnings has the warnings that etcd logs at every start and stop about what is intended here: no
// port is open, no client logs in, and a stop may come before the single member has noted its own
// version.
var ignoredWarnings = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"failed to update cluster version":                                                     true,
	// A new store has not stored its term yet when these are read; etcd reads them again.
	"Failed to detect schema version":  true,
	"failed to update storage version": true,
}

// Enabled implements zapcore.Core.
func (b zapBridge) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (b zapBridge) With(fields []zapcore.Field) zapcore.Core {
	return zapBridge{b.log, append(slices.Clip(b.fields), fields...), b.onMessage}
}

// Check implements zapcore.Core.
func (b zapBridge) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !b.Enabled(entry.Level) || ignoredWarnings[entry.Message] {
		return checked
	}
	return checked.AddCore(entry, b)
}

// Write implements zapcore.Core.
func (b zapBridge) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if b.onMessage != nil {
		b.onMessage(entry.Message)
	}
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(b.fields, fields) {
		f.AddTo(values)
	}
	attrs := []slog.Attr{slog.String("part", "etcd")}
	for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
		attrs = append(attrs, slog.Any(name, values.Fields[name]))
	}
	level := slog.LevelWarn
	if entry.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	b.log.LogAttrs(context.Background(), level, entry.Message, attrs...) //nolint:sloglint // the message is etcd's
	return nil
}

// Sync implements zapcore.Core; slog does not buffer.
func (b zapBridge) Sync() error { return nil }
