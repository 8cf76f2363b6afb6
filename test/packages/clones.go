package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/test/rig"
)

// makeReleases clones the repository twice, at paths of different length, and makes a release in each; then one of a
// later commit, to which the packages are upgraded.
func (s *site) makeReleases(ctx context.Context) error {
	base := s.clones
	if base == "" {
		base = s.dir
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return err
	}
	s.first, s.second = filepath.Join(base, "a"), filepath.Join(base, "another", "place", "of-a-clone")
	s.newer = filepath.Join(base, "newer")
	for _, clone := range []string{s.first, s.second} {
		if err := s.makeRelease(ctx, clone, s.platforms, false); err != nil {
			return err
		}
	}
	return s.makeRelease(ctx, s.newer, "linux/amd64", true)
}

// makeRelease makes a release of the present commit, or of an empty one after it, unless the clone has one.
func (s *site) makeRelease(ctx context.Context, clone, platforms string, later bool) error {
	if _, err := os.Stat(filepath.Join(clone, "dist", "SHA256SUMS")); err == nil {
		return nil
	}
	if err := os.RemoveAll(clone); err != nil { // of a run that was broken off
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := rig.Output(ctx, root, "git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", root,
		clone); err != nil {
		return err
	}
	if later {
		if _, err := rig.Output(ctx, clone, "git", "-c", "user.name=test", "-c", "user.email=test@example.test",
			"commit", "--quiet", "--allow-empty", "-m", "Change nothing"); err != nil {
			return err
		}
	}
	args := []string{"run", "-trimpath", "./internal/tools/dist", "-nfpm", filepath.Join(s.tools, "nfpm")}
	if platforms != "" {
		args = append(args, "-platforms", platforms)
	}
	_, err = rig.Output(ctx, clone, "go", args...)
	return err
}

// reproducible compares the releases of both clones.
func reproducible(_ context.Context, s *site) (string, error) {
	names, err := fileNames(s.dist())
	if err != nil {
		return "", err
	}
	others, err := fileNames(filepath.Join(s.second, "dist"))
	if err != nil {
		return "", err
	}
	if !slices.Equal(names, others) {
		return "", fmt.Errorf("the files differ: %v and %v", names, others)
	}
	size := int64(0)
	for _, name := range names {
		n, err := sameFile(filepath.Join(s.dist(), name), filepath.Join(s.second, "dist", name))
		if err != nil {
			return "", err
		}
		size += n
	}
	return fmt.Sprintf("%d files, %d MiB, equal", len(names), size>>20), nil
}

func fileNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// sameFile returns the size of two files if they are equal.
func sameFile(a, b string) (size int64, err error) {
	f, err := os.Open(a)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	g, err := os.Open(b)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errX := io.ReadFull(f, x)
		m, errY := io.ReadFull(g, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return 0, fmt.Errorf("%s differs within the MiB at byte %d", filepath.Base(a), size)
		}
		size += int64(n)
		if errX != nil || errY != nil {
			if isEnd(errX) && isEnd(errY) {
				return size, nil
			}
			return 0, errors.Join(errX, errY)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
