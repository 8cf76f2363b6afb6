package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is the main function of a test that is a program: it runs until an end or a signal, and
// exits with 1 unless run reports success.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) (ok bool, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// WorkDir makes a directory for a run's data and logs, which the unprivileged user of QEMU may
// enter. done removes it, or prints its path when it is to be kept.
func WorkDir(name string, keep bool) (dir string, done func() error, err error) {
	if dir, err = os.MkdirTemp("", "buildyard-"+name+"-"); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if keep {
		return dir, func() error { fmt.Fprintln(os.Stderr, "data and logs are in", dir); return nil }, nil
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
