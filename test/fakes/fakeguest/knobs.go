package fakeguest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Never is the value of a knob for what does not happen.
const Never = "never"

// Knobs is the directory of the knobs, files whose content is the value. They are read at each use, so that a test
// changes a running VM.
type Knobs string

// Text returns the value of a knob: that of the VM if there is one, otherwise that of all, otherwise a default.
func (k Knobs) Text(vm, knob, otherwise string) string {
	for _, path := range []string{filepath.Join(string(k), vm, knob), filepath.Join(string(k), knob)} {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return otherwise
}

// IsSet reports whether a knob exists, with any content.
func (k Knobs) IsSet(vm, knob string) bool { return k.Text(vm, knob, Never) != Never }

// Words returns the words of a knob.
func (k Knobs) Words(vm, knob string) []string { return strings.Fields(k.Text(vm, knob, "")) }

// Seconds returns a knob as a duration; a value that is not a number of seconds is a very long time.
func (k Knobs) Seconds(vm, knob string, otherwise time.Duration) time.Duration {
	text := k.Text(vm, knob, "")
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 1000 * time.Hour
	}
	return time.Duration(n * float64(time.Second))
}

// Number returns a knob as a number.
func (k Knobs) Number(vm, knob string, otherwise int) int {
	if n, err := strconv.Atoi(k.Text(vm, knob, "")); err == nil {
		return n
	}
	return otherwise
}

// Pause waits, and reports whether the context is still active.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
