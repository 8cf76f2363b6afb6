package guestscript

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
)

//go:embed follower.sh
var followerText string

// A running command is asked for its output after an eighth of the time it has taken so far.
const (
	minFollowInterval = time.Second
	maxFollowInterval = 5 * time.Second
	followTimeout     = 30 * time.Second // for one request
)

// FollowArgs returns the program that prints the end of what a running command has printed so far, see
// hv.Command.OnOutput. It prints nothing when the guest has no such command.
func FollowArgs(name string) []string {
	return shellArgs(followerText, name, strconv.Itoa(hv.MaxLiveOutputBytes))
}

// Follow calls onOutput with the output of a running command, from time to time until the returned
// function is called, which waits for the last call. read returns the outputs of a guest that runs
// FollowArgs; its errors are ignored, since the guest is asked again.
func Follow(
	ctx context.Context, read func(context.Context) (stdout, stderr []byte, err error),
	onOutput func(stdout, stderr []byte),
) (stop func()) {
	if onOutput == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		begun := time.Now()
		for retry.Sleep(ctx, min(max(time.Since(begun)/8, minFollowInterval), maxFollowInterval)) == nil {
			limited, end := context.WithTimeout(ctx, followTimeout)
			stdout, stderr, err := read(limited)
			end()
			if err == nil && len(stdout)+len(stderr) > 0 {
				onOutput(stdout, stderr)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// readOutput returns the outputs of a running command as its guest prints them.
func (c *command) readOutput(ctx context.Context, run Run) (stdout, stderr []byte, err error) {
	out := &tailBuffer{limit: hv.MaxLiveOutputBytes}
	errOut := &tailBuffer{limit: hv.MaxLiveOutputBytes}
	err = run(ctx, FollowArgs(c.name), strings.NewReader(""), out, errOut)
	return out.bytes(), errOut.bytes(), err
}
