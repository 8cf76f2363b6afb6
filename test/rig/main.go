package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is the main function of a test that is a program: it runs until an end or a
// signal, and exits with 1 unless run says that all is well.
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
