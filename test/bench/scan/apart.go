package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// Work that takes much memory runs in a separate process of this program: a process begins with the
// largest resident set of its parent, so that a large benchmark would hide what it measures.
const (
	makingAPFS     = "make-apfs"
	makingTemplate = "make-template"
	makingPackages = "make-packages"
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

// serve does the work of a process that apart started; done is false for the arguments of a run.
func serve(ctx context.Context, args []string) (done bool, err error) {
	if len(args) == 0 {
		return false, nil
	}
	switch what, rest := args[0], args[1:]; {
	case what == makingAPFS && len(rest) == 2:
		return true, writeAPFS(rest[0], rest[1])
	case what == makingTemplate && len(rest) == 3:
		layers, err := strconv.Atoi(rest[2])
		return true, errors.Join(err, writeTemplate(ctx, rest[0], rest[1], layers))
	case what == makingPackages && len(rest) == 2:
		return true, writePackages(rest[0], rest[1])
	}
	return false, nil
}
