// Package scantree makes a large tree of real packages for measuring scanners and for
// comparing them with others: Go's own tree, npm packages, unpacked Debian packages, and
// files of the Mac that are written by hand.
//
// It is not a fixture of unit tests: it takes the network and minutes the first time.
// Where packages come from is what npm and apt of this machine say.
//
// Invariant: a tree that is there is whole, and was made from the lists that are here now.
package scantree

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// lists are what the tree is made of.
//
//go:embed lists
var lists embed.FS

// Least is how many entries the tree has at least.
const Least = 100_000

// Make returns the directory of the tree, which it makes in a cache directory when it is not there.
// say is told what takes long.
func Make(ctx context.Context, say func(format string, args ...any)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("making a tree: %w", err)
	}
	id, err := identity(ctx)
	if err != nil {
		return "", fmt.Errorf("making a tree: %w", err)
	}
	top := filepath.Join(cache, "buildyard", "scantree")
	dir := filepath.Join(top, id)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", fmt.Errorf("making a tree: %w", err)
	}
	part, err := os.MkdirTemp(top, "part-")
	if err != nil {
		return "", fmt.Errorf("making a tree: %w", err)
	}
	if err := make1(ctx, part, say); err != nil {
		return "", errors.Join(fmt.Errorf("making a tree: %w", err), os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("making a tree: %w", err)
	}
	return dir, nil
}

// identity tells trees of other lists or another Go apart.
func identity(ctx context.Context) (string, error) {
	h := sha256.New()
	version, err := output(ctx, "", "go", "version")
	if err != nil {
		return "", err
	}
	h.Write([]byte(version))
	err = fs.WalkDir(lists, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := lists.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n", name, len(data))
		h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}

// make1 makes the parts of the tree.
func make1(ctx context.Context, dir string, say func(string, ...any)) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		make func(context.Context, string) error
	}{
		{"files of the Mac and lock files", handMade},
		{"Go's own tree", goTree},
		{"programs of Go for other systems", goPrograms},
		{"npm packages", npmPackages},
		{"Debian packages", debianPackages},
	} {
		say("making %s", part.what)
		if err := part.make(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	n := 0
	if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil }); err != nil {
		return err
	}
	if n < Least {
		return fmt.Errorf("it has only %d entries", n)
	}
	say("made a tree of %d entries", n)
	return nil
}

// words reads a list: a line each, without comments.
func words(name string) []string {
	data, err := lists.ReadFile("lists/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// goTree copies Go.
func goTree(ctx context.Context, dir string) error {
	root, err := output(ctx, "", "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	to := filepath.Join(dir, "usr/local/go")
	return os.CopyFS(to, os.DirFS(root))
}

// goPrograms builds a small program with modules for systems whose programs look
// different.
func goPrograms(ctx context.Context, dir string) error {
	for _, target := range []string{"darwin/arm64", "windows/amd64", "linux/amd64"} {
		system, machine, _ := strings.Cut(target, "/")
		name := filepath.Join(dir, "opt/tools", system, "bin", "archtool")
		if system == "windows" {
			name += ".exe"
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if _, err := output(ctx, "", "env", "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine, "go", "build",
			"-trimpath", "-o", name,
			"github.com/buildyard/buildyard/test/scantree/program"); err != nil {
			return err
		}
	}
	return nil
}

// npmPackages installs packages as they were on one day.
func npmPackages(ctx context.Context, dir string) error {
	for _, project := range []string{"web", "tools"} {
		to := filepath.Join(dir, "srv", project)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, "package.json"),
			fmt.Appendf(nil, "{\"name\":%q,\"version\":\"1.0.0\",\"private\":true}\n", project), 0o644); err != nil {
			return err
		}
		args := slices.Concat([]string{
			"npm", "install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund", "--no-bin-links",
			"--omit-lockfile-registry-resolved",
		}, words("npm-"+project+".txt"))
		if _, err := output(ctx, to, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// debianPackages unpacks packages without what they depend on.
func debianPackages(ctx context.Context, dir string) error {
	cache, err := os.MkdirTemp("", "buildyard-debs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	if _, err := output(ctx, cache, "apt-get",
		append([]string{"-qq", "-o", "APT::Sandbox::User=root", "download"}, words("debian.txt")...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(cache, "*.deb"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := output(ctx, "", "dpkg-deb", "-x", f, dir); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", name,
			err, strings.TrimSpace(string(exit.Stderr[max(0, len(exit.Stderr)-2000):])))
	}
	return strings.TrimSpace(string(text)), err
}
