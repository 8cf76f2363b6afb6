package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// usage is the resource usage of a process.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // bytes of its largest resident set
}

func (u usage) String() string {
	return fmt.Sprintf("%.2f s, processor %.2f s, %d MB", u.wall.Seconds(), u.cpu.Seconds(), u.memory>>20)
}

// measure runs a program to its end.
func measure(ctx context.Context, out io.Writer, program string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &text
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return usage{}, fmt.Errorf("%s: %w: %s", program, err, text.Bytes()[max(0, text.Len()-1000):])
	}
	u := usage{wall: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = r.Maxrss << 10 // Linux counts kilobytes
	}
	if own := (syscall.Rusage{}); syscall.Getrusage(syscall.RUSAGE_SELF, &own) == nil && own.Maxrss<<10 >= u.memory {
		return u, fmt.Errorf("%s: its memory is hidden by that of the benchmark, %d MB", program, own.Maxrss>>10)
	}
	return u, nil
}
