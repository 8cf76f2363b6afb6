package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// benchEnv is an empty registry and a bare file server for one round.
type benchEnv struct {
	b        *bench
	dir      string
	registry string // address
	reg      *rig.Process
	files    string // address
	bare     *rig.Process
}

// stageDir is where a stage of that name lies.
func (b *bench) stageDir(name string) string { return filepath.Join(b.Dir, name) }

// The templates that a round pushes; both begin with the base.
const (
	withScattered = "00000000-0000-4000-8000-000000000001"
	withClustered = "00000000-0000-4000-8000-000000000002"
)

// open starts both below a new directory. A returned environment must be closed, also after an
// error.
func (b *bench) open(ctx context.Context, name string) (*benchEnv, error) {
	s := &benchEnv{b: b, dir: b.stageDir(name)}
	if err := rig.MakeDir(s.dir); err != nil {
		return nil, err
	}
	var err error
	base := filepath.Join(s.dir, "registry")
	s.registry, s.reg, err = start(ctx, s.dir, "registry-log",
		b.Programs.Path("buildyard"), func(address string) []string {
			return []string{"registry", "--listen-addr", address, "--base-path", base}
		})
	if err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	s.files, s.bare, err = start(ctx, s.dir, "files-log", self, func(address string) []string {
		return []string{childFiles, address, b.Dir}
	})
	return s, err
}

// start starts a server at a free address and waits until it is ready.
func start(
	ctx context.Context, dir, name, bin string, args func(address string) []string,
) (string, *rig.Process, error) {
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return "", nil, err
	}
	p := rig.NewProcess(dir, name, bin, args(address)...)
	if err := p.Start(); err != nil {
		return "", nil, err
	}
	return "http://" + address, p, rig.Ready(ctx, p, "http://"+address)
}

// close ends both and removes what they wrote.
func (s *benchEnv) close() error {
	var err error
	for _, p := range []*rig.Process{s.reg, s.bare} {
		if p != nil {
			err = errors.Join(err, p.End())
		}
	}
	client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if s.b.Keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// path is a place below the stage's directory.
func (s *benchEnv) path(name string) string { return filepath.Join(s.dir, name) }

// layer returns the path and the size of a layer file.
func (s *benchEnv) layer(root string) (path string, size int64, err error) {
	path = s.path(filepath.Join("registry", "images_dir", root+".ank"))
	st, err := os.Stat(path)
	if err != nil {
		return "", 0, err
	}
	return path, st.Size(), nil
}

// bareAddress is where the bare file server has a file below the run's directory.
func (s *benchEnv) bareAddress(path string) string {
	return s.files + strings.TrimPrefix(path, s.b.Dir)
}

// blobAddress is where the registry has a layer.
func (s *benchEnv) blobAddress(root string) string { return s.registry + "/registry/v2/blob/" + root }

// timed settles the disk, and measures the seconds of work.
func (s *benchEnv) timed(work func() error) (float64, error) {
	if err := settle(s.dir); err != nil {
		return 0, err
	}
	began := time.Now()
	err := work()
	return time.Since(began).Seconds(), err
}
