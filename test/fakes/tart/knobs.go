package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The knobs: files whose content is the value. The package comment says what they do.
const (
	knobVersion         = "version"
	knobHang            = "hang"
	knobLimit           = "limit"
	knobSlotHeld        = "slot-held"
	knobSlots           = "slots-dir"
	knobLeases          = "leases-file"
	knobBootDelay       = "boot-delay"
	knobAgentDelay      = "agent-delay"
	knobNetworkDelay    = "network-delay"
	knobVNCDelay        = "vnc-delay"
	knobNoVNC           = "no-vnc"
	knobVZError         = "vz-error"
	knobNoSoftnet       = "no-softnet"
	knobCloneDelay      = "clone-delay"
	knobDiskFull        = "disk-full"
	knobIgnoreShutdown  = "ignore-shutdown"
	knobShutdownDelay   = "shutdown-delay"
	knobInterruptDelay  = "interrupt-delay"
	knobCrash           = "crash"
	knobNetworkError    = "network-error"
	knobScreenShareWait = "screen-share-wait"
	knobSSH             = "ssh"
	knobEcho            = "echo-port"
	never               = "never"
)

// knobs is the directory of the knobs. It is read at each use, so that a test changes a running VM.
type knobs string

// text returns the value of a knob: that of the VM if there is one, otherwise that of all, otherwise a default.
func (k knobs) text(vm, knob, otherwise string) string {
	for _, path := range []string{filepath.Join(string(k), vm, knob), filepath.Join(string(k), knob)} {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return otherwise
}

// isSet reports whether a knob exists, with any content.
func (k knobs) isSet(vm, knob string) bool { return k.text(vm, knob, never) != never }

func (k knobs) words(vm, knob string) []string { return strings.Fields(k.text(vm, knob, "")) }

// seconds returns a knob as a duration; a value that is not a number of seconds is a very long time.
func (k knobs) seconds(vm, knob string, otherwise time.Duration) time.Duration {
	text := k.text(vm, knob, "")
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 1000 * time.Hour
	}
	return time.Duration(n * float64(time.Second))
}

func (k knobs) number(vm, knob string, otherwise int) int {
	if n, err := strconv.Atoi(k.text(vm, knob, "")); err == nil {
		return n
	}
	return otherwise
}

// pause waits, and reports whether the context is still active.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
