package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/test/rig"
)

// stage is what all cases of a run share.
type stage struct {
	rig.Programs
	dir   string // of everything that the run writes
	fakes string // directory with the program tart
	base  string // directory of a VM of tart without a guest: what templates are imported from
}

// The base VM has random bytes, so that the traffic of a whole version is more than that of a change.
const (
	payloadBytes  = 24 << 20
	payloadOffset = 300 << 20 // in the root disk, behind the files of the guest
)

func newStage(ctx context.Context, dir string) (*stage, error) {
	s := &stage{dir: dir, fakes: filepath.Join(dir, "fakes")}
	var err error
	if s.Programs, err = rig.Build(ctx, dir); err != nil {
		return nil, err
	}
	if err := rig.BuildSmall(ctx, filepath.Join(s.fakes, "tart"), "test/fakes/tart"); err != nil {
		return nil, err
	}
	return s, s.makeBase(ctx)
}

// makeBase creates the base VM by tart, as the owner of a Mac does.
func (s *stage) makeBase(ctx context.Context) error {
	ipsw := filepath.Join(s.dir, "restore.ipsw")
	if err := os.WriteFile(ipsw, nil, 0o600); err != nil {
		return err
	}
	home := filepath.Join(s.dir, "base")
	_, err := rig.Output(ctx, "", "env", "TART_HOME="+home, filepath.Join(s.fakes, "tart"), "create", "base",
		"--from-ipsw", ipsw, "--disk-size", "8")
	if err != nil {
		return err
	}
	s.base = filepath.Join(home, "vms", "base")
	disk, err := os.OpenFile(filepath.Join(s.base, "disk.img"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.CopyN(io.NewOffsetWriter(disk, payloadOffset), rand.Reader, payloadBytes)
	return errors.Join(err, disk.Close())
}

// importArgs are the arguments of "buildnode vm" that import the base VM as a template.
func (s *stage) importArgs(name string) []string {
	return []string{"import", "--tart", s.base, "--name", name, "--cpu", "2", "--ram", "4G"}
}

// tart runs the fake program for a Mac, as another program or its owner would, and returns what it prints.
func (m *mac) tart(ctx context.Context, home string, args ...string) (string, error) {
	command := append([]string{"TART_HOME=" + home, "TART_KNOBS=" + m.knobs(), filepath.Join(m.fakes, "tart")}, args...)
	out, err := rig.Output(ctx, "", "env", command...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	return out, nil
}
