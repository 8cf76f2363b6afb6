package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// programs are the programs of one commit.
type programs struct {
	root   string // sources
	bin    string // directory of the programs
	commit string
}

func (p programs) path(name string) string { return filepath.Join(p.bin, name) }

// builds are the old programs, the new ones, and a program of the old sources that uses the client
// package.
type builds struct {
	old, new programs
	sdk      string
}

// programNames are all programs of the product.
var programNames = []string{"buildyard", "buildnode", "imagescan", "hostscan"}

// buildAll writes the sources of a commit below dir and builds the programs of both.
func buildAll(ctx context.Context, from, dir string) (*builds, error) {
	root, err := rig.Output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("run it inside the repository: %w", err)
	}
	commits := make([]string, 2)
	for i, name := range []string{from, "HEAD"} {
		if commits[i], err = rig.Output(ctx, root, "git", "rev-parse", "--short", name); err != nil {
			return nil, err
		}
	}
	b := &builds{
		old: programs{root: filepath.Join(dir, "old-source"), bin: filepath.Join(dir, "old-bin"), commit: commits[0]},
		new: programs{root: root, bin: filepath.Join(dir, "new-bin"), commit: commits[1]},
		sdk: filepath.Join(dir, "old-bin", "upgradesdk"),
	}
	if _, err := os.Stat(b.old.root); errors.Is(err, fs.ErrNotExist) {
		if err := b.old.extract(ctx, root, from); err != nil {
			return nil, err
		}
	}
	for _, p := range []*programs{&b.old, &b.new} {
		if err := p.build(ctx); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// extract writes the sources of a commit.
func (p *programs) extract(ctx context.Context, repository, commit string) error {
	if err := os.MkdirAll(p.root, 0o755); err != nil {
		return err
	}
	archive := p.root + ".tar"
	if _, err := rig.Output(ctx, repository, "git", "archive", "--output", archive, commit); err != nil {
		return err
	}
	if _, err := rig.Output(ctx, p.root, "tar", "xf", archive); err != nil {
		return err
	}
	return errors.Join(os.Remove(archive), writeSDKProgram(p.root))
}

// build builds what is below cmd, as users get it.
func (p *programs) build(ctx context.Context) error {
	if _, err := os.Stat(p.path("hostscan")); err == nil {
		return nil // by a run before
	}
	_, err := rig.Output(ctx, p.root, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-buildvcs=false", "-o",
		p.bin+"/", "./cmd/...")
	if err != nil {
		return fmt.Errorf("build the programs of %s: %w", p.root, err)
	}
	return nil
}

// result is what a command printed and how it ended.
type result struct {
	stdout, stderr string
	code           int
}

// commandTime bounds one command.
const commandTime = time.Minute

// execute runs a program to its end, with settings in its environment. A command that ends with a
// status other than 0 is not an error.
func execute(ctx context.Context, env []string, program string, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SVC_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	err := cmd.Run()
	res := result{strings.TrimSpace(stdout.String()), strings.TrimSpace(stderr.String()), cmd.ProcessState.ExitCode()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return res, nil
	}
	return res, err
}
