package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/buildyard/buildyard/test/bench/runner"
)

// Work that takes much memory runs in a separate process of this program: a process begins with the
// largest resident set of its parent, so that a large benchmark would hide what it measures.
const (
	makingAPFS     = "make-apfs"
	makingTemplate = "make-template"
	makingPackages = "make-packages"
	makingNext     = "make-next"
)

// apart runs one of the above in a separate process.
func apart(ctx context.Context, what string, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{what}, args...)...)
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", what, err, text.Bytes())
	}
	return nil
}

var children = map[string]runner.Child{
	makingAPFS: child(2, func(_ context.Context, args []string) error { return writeAPFS(args[0], args[1]) }),
	makingTemplate: child(3, func(ctx context.Context, args []string) error {
		layers, err := strconv.Atoi(args[2])
		return errors.Join(err, writeTemplate(ctx, args[0], args[1], layers))
	}),
	makingNext: child(3, func(ctx context.Context, args []string) error {
		return writeNext(ctx, args[0], args[1], args[2])
	}),
	makingPackages: child(2, func(_ context.Context, args []string) error { return writePackages(args[0], args[1]) }),
}

// child returns work with a number of arguments.
func child(count int, do func(context.Context, []string) error) runner.Child {
	return func(ctx context.Context, args []string, _ io.Writer) error {
		if len(args) != count {
			return fmt.Errorf("want %d arguments, got %d", count, len(args))
		}
		return do(ctx, args)
	}
}
