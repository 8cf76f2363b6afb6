package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// checkRPMs verifies the digests of the rpm packages, compares their files with those of the deb packages, and installs
// and erases them in an empty tree. Their scripts, which need a shell in the tree, are those of the deb packages.
func checkRPMs(ctx context.Context, s *site) (string, error) {
	list, err := filepath.Glob(filepath.Join(s.dist(), "*.x86_64.rpm"))
	if err != nil {
		return "", err
	}
	if len(list) != 3 {
		return "", fmt.Errorf("%d packages for x86_64, want 3", len(list))
	}
	for _, file := range list {
		if _, err := rig.Output(ctx, s.dir, "rpm", "-K", "--nosignature", file); err != nil {
			return "", err
		}
	}
	tree := filepath.Join(s.dir, "rpmtree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	install := append([]string{"--root", tree, "--noscripts", "--nodeps", "--ignorearch", "-i"}, list...)
	if _, err := rig.Output(ctx, s.dir, "rpm", install...); err != nil {
		return "", err
	}
	files, err := sameFiles(ctx, s, tree)
	if err != nil {
		return "", err
	}
	scripts, err := sameScripts(ctx, s, list)
	if err != nil {
		return "", err
	}
	if _, err := rig.Output(ctx, s.dir, "rpm", "--root", tree, "--noscripts", "-e", "buildyard", "buildnode",
		"buildyard-scanners"); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(tree, "usr/bin/buildyard")); err == nil {
		return "", errors.New("rpm -e keeps the program")
	}
	return fmt.Sprintf("3 packages, %d files and %d scripts as in the deb packages", files, scripts), nil
}

// sameFiles compares the tree of the rpm packages with that of the deb packages.
func sameFiles(ctx context.Context, s *site, tree string) (int, error) {
	debs, err := s.unpackDebs(ctx)
	if err != nil {
		return 0, err
	}
	want, err := listTree(debs)
	got, gotErr := listTree(tree)
	if err := errors.Join(err, gotErr); err != nil {
		return 0, err
	}
	// The database of rpm is in the tree.
	got = slices.DeleteFunc(got, func(name string) bool {
		return strings.Contains(name, "rpm") || !slices.Contains(want, name) && isDir(filepath.Join(tree, name))
	})
	if missing := slices.DeleteFunc(slices.Clone(want), func(n string) bool { return slices.Contains(got, n) }); len(
		missing) > 0 {
		return 0, fmt.Errorf("the rpm packages lack %v", missing)
	}
	for _, name := range got {
		if isDir(filepath.Join(tree, name)) {
			continue
		}
		if _, err := sameFile(filepath.Join(tree, name), filepath.Join(debs, name)); err != nil {
			return 0, err
		}
	}
	return len(want), nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// sameScripts compares the scripts of the rpm packages with those of the deb packages.
func sameScripts(ctx context.Context, s *site, rpms []string) (n int, err error) {
	for _, file := range rpms {
		scripts, err := rig.Output(ctx, s.dir, "rpm", "-qp", "--nosignature", "--scripts", file)
		if err != nil {
			return n, err
		}
		name, err := rig.Output(ctx, s.dir, "rpm", "-qp", "--nosignature", "--queryformat", "%{NAME}", file)
		if err != nil {
			return n, err
		}
		debs, err := filepath.Glob(filepath.Join(s.dist(), name+"_*_amd64.deb"))
		if err != nil {
			return n, err
		}
		if len(debs) != 1 {
			return n, fmt.Errorf("%d packages %s", len(debs), name)
		}
		for _, script := range []string{"postinst", "prerm", "postrm"} {
			text, err := rig.Output(ctx, s.dir, "dpkg-deb", "--info", debs[0], script)
			if err != nil {
				return n, err
			}
			_, body, _ := strings.Cut(strings.TrimSpace(text), "\n")
			if !strings.Contains(scripts, body) {
				return n, fmt.Errorf("%s has another %s than the deb package", filepath.Base(file), script)
			}
			n++
		}
	}
	return n, nil
}
