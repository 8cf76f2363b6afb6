package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// MakeDir makes a directory that the unprivileged user of QEMU may walk through.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return nil
}

// repository finds the root of the module that the run is started in.
func repository(ctx context.Context) (string, error) {
	mod, err := Output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	root := filepath.Dir(mod)
	if _, err := os.Stat(filepath.Join(root, "cmd", "buildnode")); err != nil {
		return "", fmt.Errorf("run it inside the repository: %w", err)
	}
	return root, nil
}

// Programs are the programs of this repository, built as users get them: without cgo.
type Programs struct {
	root string // of the repository
	dir  string // where they lie
}

// Build builds the programs into a directory below dir.
func Build(ctx context.Context, dir string) (p Programs, err error) {
	if p.root, err = repository(ctx); err != nil {
		return p, err
	}
	p.dir = filepath.Join(dir, "bin")
	if err := MakeDir(p.dir); err != nil {
		return p, err
	}
	_, err = Output(ctx, p.root, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", p.dir, "./cmd/buildyard",
		"./cmd/buildnode")
	return p, err
}

// BuildAll is Build with the scanners.
func BuildAll(ctx context.Context, dir string) (Programs, error) {
	p, err := Build(ctx, dir)
	if err != nil {
		return p, err
	}
	_, err = Output(ctx, p.root, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", p.dir, "./cmd/...")
	return p, err
}

// BuildModule builds the program of a separate module, in a directory of the repository, into a
// file.
func (p Programs) BuildModule(ctx context.Context, dir, file string) error {
	_, err := Output(ctx, filepath.Join(p.root, dir), "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", file,
		".")
	return err
}

// BuildTagged builds a program of the repository with a build tag into a file.
func (p Programs) BuildTagged(ctx context.Context, tag, name, file string) error {
	_, err := Output(ctx, p.root, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-tags", tag, "-o", file,
		"./cmd/"+name)
	return err
}

// Root is the repository's directory.
func (p Programs) Root() string { return p.root }

// Path returns the path of a program.
func (p Programs) Path(name string) string { return filepath.Join(p.dir, name) }

// ErrSkip is a test that cannot run on this machine.
var ErrSkip = errors.New("cannot run here")

// Guest builds the demo guest into a file of dir, or takes it from the builder's own
// cache.
func (p Programs) Guest(ctx context.Context, dir string) (disk string, err error) {
	return Guest(ctx, p.root, dir)
}

// Guest is that method for the repository in root.
func Guest(ctx context.Context, root, dir string) (disk string, err error) {
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w: %s is not installed", ErrSkip, program)
		}
	}
	disk = filepath.Join(dir, "guest.qcow2")
	_, err = Output(ctx, root, "bash", filepath.Join(root, "guest", "build.sh"), "--password", "test", disk)
	return disk, err
}

// At returns the same programs in another directory, where the caller has built them.
func (p Programs) At(dir string) Programs {
	p.dir = dir
	return p
}
