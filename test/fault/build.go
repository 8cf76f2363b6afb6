package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// makeDir makes a directory that the unprivileged user of QEMU may walk through.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return nil
}

// repository finds the root of the module that the run is started in.
func repository(ctx context.Context) (string, error) {
	mod, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	root := filepath.Dir(mod)
	if _, err := os.Stat(filepath.Join(root, "cmd", "buildnode")); err != nil {
		return "", fmt.Errorf("run it inside the repository: %w", err)
	}
	return root, nil
}

// build builds the programs as users get them: without cgo.
func (b *bench) build(ctx context.Context) error {
	begin := time.Now()
	b.bins = filepath.Join(b.dir, "bin")
	if err := makeDir(b.bins); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.bins, "./cmd/buildyard", "./cmd/buildnode")
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, strings.TrimSpace(string(out)))
	}
	fmt.Fprintf(b.out, "built the programs in %s\n", time.Since(begin).Round(time.Second))
	return nil
}

// errSkip is a target that cannot run on this machine.
var errSkip = errors.New("cannot run here")

// guest builds the demo guest, or takes it from the builder's own cache.
func (b *bench) guest(ctx context.Context) (string, error) {
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w: %s is not installed", errSkip, program)
		}
	}
	disk := filepath.Join(b.dir, "guest.qcow2")
	_, err := output(ctx, b.root, "bash", filepath.Join(b.root, "guest", "build.sh"), "--password", "fault", disk)
	return disk, err
}
