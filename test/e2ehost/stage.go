package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// stage is the environment of a run.
//
//	dir/host    what is scanned: packages are installed there
//	dir/back    what is made beforehand
//	dir/state   of the services: configuration, inventory, log
//	dir/bin     programs
//
// All but host is left out of scans.
type stage struct {
	options
	out   io.Writer
	dir   string
	cache string // of downloads, shared with the next run
	repo  string
	began time.Time
	rows  []row
	leave []string // directories of this machine outside of the test
	ends  []func() error
	fresh int // services that were started for full scans
}

func newStage(ctx context.Context, o options, out io.Writer) (s *stage, err error) {
	s = &stage{options: o, out: out, began: time.Now()}
	if os.Geteuid() != 0 {
		return nil, errors.New("it must be run as root: without, the system tells of no change of the whole host")
	}
	if s.shared, err = filepath.Abs(o.shared); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(s.shared, "data", "vuln")); err != nil {
		return nil, fmt.Errorf("SHARED must name the directory that holds data/vuln: %w", err)
	}
	mod, err := rig.Output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	s.repo = filepath.Dir(mod)
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	s.cache = filepath.Join(cache, "buildyard", "e2ehost")
	if s.dir, err = realDir(); err != nil {
		return nil, err
	}
	s.atEnd(func() error {
		if s.keep {
			fmt.Fprintln(os.Stderr, "what was installed and the logs are in", s.dir)
			return nil
		}
		return os.RemoveAll(s.dir)
	})
	for _, d := range []string{s.cache, s.host(), s.back(), s.at("state"), s.at("bin")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if s.leave, err = siblings(s.host()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.programs(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) at(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}
func (s *stage) host(parts ...string) string { return s.at(append([]string{"host"}, parts...)...) }
func (s *stage) back(parts ...string) string { return s.at(append([]string{"back"}, parts...)...) }
func (s *stage) program(name string) string  { return s.at("bin", name) }

// atEnd registers a cleanup; the last registered runs first.
func (s *stage) atEnd(do func() error) { s.ends = append(s.ends, do) }

func (s *stage) close() (err error) {
	for _, do := range slices.Backward(s.ends) {
		err = errors.Join(err, do())
	}
	s.ends = nil
	return err
}

// tmpfs is the type of file systems in memory.
const tmpfs = 0x01021994

// realDir creates a directory that is on a disk.
func realDir() (string, error) {
	for _, top := range []string{os.TempDir(), "/var/tmp"} {
		var st syscall.Statfs_t
		if err := syscall.Statfs(top, &st); err != nil || st.Type == tmpfs {
			continue
		}
		top, err := filepath.EvalSymlinks(top)
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp(top, "buildyard-e2ehost-")
		if err != nil {
			return "", err
		}
		return dir, os.Chmod(dir, 0o755)
	}
	return "", errors.New("the directories for temporary files are in memory: set TMPDIR to one on a disk")
}

// siblings lists the siblings of a directory and of its ancestors, up to the root: all that is not
// part of the test.
func siblings(dir string) (out []string, err error) {
	for at := dir; at != "/"; at = filepath.Dir(at) {
		all, err := os.ReadDir(filepath.Dir(at))
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if p := filepath.Join(filepath.Dir(at), e.Name()); e.IsDir() && p != at {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// programs builds the scanner's programs as users get them.
func (s *stage) programs(ctx context.Context) error {
	_, err := rig.Output(ctx, s.repo, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		s.at("bin"), "./cmd/hostscan", "./cmd/imagescan")
	return err
}

// sh runs a program in a directory. Its temporary files are in dir/back.
func (s *stage) sh(ctx context.Context, dir string, args ...string) (string, error) {
	if dir == "" {
		dir = s.back()
	}
	env := []string{"TMPDIR=" + s.back(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	return rig.Output(ctx, dir, "env", append(env, args...)...)
}

// write writes a file and creates its directories.
func write(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// writeTree writes files below a directory.
func writeTree(dir string, files map[string][]byte) error {
	for name, data := range files {
		if err := write(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	return nil
}
