package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// one returns the only file of the release that matches a pattern.
func (s *site) one(pattern string) (string, error) {
	list, err := filepath.Glob(filepath.Join(s.dist(), pattern))
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("want one file %s in the release, not %d", pattern, len(list))
	}
	return list[0], nil
}

// unpack unpacks the archive of this machine and returns its top directory.
func (s *site) unpack(ctx context.Context) (string, error) {
	archive, err := s.one("buildyard_*_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz")
	if err != nil {
		return "", err
	}
	top := filepath.Join(s.dir, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"))
	if _, err := os.Stat(top); err == nil {
		return top, nil
	}
	_, err = rig.Output(ctx, s.dir, "tar", "-xzf", archive)
	return top, err
}

func checkSums(ctx context.Context, s *site) (string, error) {
	out, err := rig.Output(ctx, s.dist(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	return fmt.Sprintf("%d files by sha256sum", strings.Count(out, ": OK")), err
}

// checkSignature signs a copy of the release, and verifies it with this program and with minisign.
func checkSignature(ctx context.Context, s *site) (string, error) {
	top, err := s.unpack(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(top, "buildyard")
	dir := filepath.Join(s.dir, "signed")
	if err := os.CopyFS(dir, os.DirFS(s.dist())); err != nil {
		return "", err
	}
	key, public := filepath.Join(s.dir, "release.key"), filepath.Join(s.dir, "release.pub")
	for _, command := range [][]string{
		{program, "release", "keygen", "--out", key},
		{program, "release", "sign", "--key", key, dir},
		{program, "release", "verify", "--key", public, dir},
		{"minisign", "-V", "-p", public, "-m", filepath.Join(dir, "SHA256SUMS")},
	} {
		if _, err := rig.Output(ctx, dir, command[0], command[1:]...); err != nil {
			return "", err
		}
	}
	refusals, err := s.refusals(ctx, program, dir, public)
	return fmt.Sprintf("verified by release verify and minisign; %d refusals", refusals), err
}

// refusals changes the signed release in ways that an attacker may.
func (s *site) refusals(ctx context.Context, program, dir, public string) (n int, err error) {
	a, err := s.one("buildnode-linux-amd64.tar.gz")
	b, errB := s.one("buildyard.rb")
	if err := errors.Join(err, errB); err != nil {
		return 0, err
	}
	a, b = filepath.Join(dir, filepath.Base(a)), filepath.Join(dir, filepath.Base(b))
	for _, attack := range []struct {
		name   string
		change func() error
		args   []string
	}{
		{"a changed byte", func() error { return flip(a) }, nil},
		{"a swapped file", func() error { return errors.Join(os.Remove(a), os.Rename(b, a)) }, nil},
		{"an added file", func() error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) }, nil},
		{"an older release", func() error { return nil }, []string{"--at-least", "999.0.0-x"}},
	} {
		if err := attack.change(); err != nil {
			return n, err
		}
		args := append([]string{"release", "verify", "--key", public, dir}, attack.args...)
		if _, err := rig.Output(ctx, dir, program, args...); err == nil {
			return n, fmt.Errorf("%s was not refused", attack.name)
		}
		n++
		for _, name := range []string{filepath.Base(a), filepath.Base(b)} {
			raw, err := os.ReadFile(filepath.Join(s.dist(), name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
			}
			if err != nil {
				return n, err
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "x")); err != nil {
			return n, err
		}
	}
	_, err = rig.Output(ctx, dir, program, "release", "verify", "--key", public, dir)
	return n, err
}

// flip changes one bit in the middle of a file.
func flip(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	raw[len(raw)/2] ^= 1
	return os.WriteFile(file, raw, 0o644)
}

func checkArchives(ctx context.Context, s *site) (string, error) {
	top, err := s.unpack(ctx)
	if err != nil {
		return "", err
	}
	version := ""
	for _, name := range []string{"buildyard", "buildnode", "imagescan", "hostscan"} {
		out, err := rig.Output(ctx, top, filepath.Join(top, name), "version", "-o", "json")
		if err != nil {
			return "", err
		}
		var build struct{ Version, Commit, Date string }
		if err := json.Unmarshal([]byte(out), &build); err != nil {
			return "", fmt.Errorf("%s version: %w", name, err)
		}
		if build.Version == "" || build.Commit == "" || build.Date == "" || version != "" && version != build.Version {
			return "", fmt.Errorf("%s says %s", name, out)
		}
		version = build.Version
	}
	// An agent package contains what the program in it says: otherwise nodes refuse it.
	agent, err := s.one("buildnode-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz")
	if err != nil {
		return "", err
	}
	packaged, err := rig.Output(ctx, s.dir, "tar", "-xzOf", agent, "VERSION")
	if err == nil && strings.TrimSpace(packaged) != version {
		err = fmt.Errorf("the agent package has version %q, and its program %s", packaged, version)
	}
	return version, err
}

// moduleLine matches a module in the output of "go version -m".
var moduleLine = regexp.MustCompile(`(?m)^\t(dep|=>)\t(\S+)\t(\S+)`)

func checkSBOMs(ctx context.Context, s *site) (string, error) {
	top, err := s.unpack(ctx)
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(s.dist(), filepath.Base(top)+".cdx.json"))
	if err != nil {
		return "", err
	}
	var bom struct {
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(raw, &bom); err != nil {
		return "", err
	}
	modules := 0
	for _, d := range bom.Dependencies {
		if d.Ref == "release" {
			continue
		}
		out, err := rig.Output(ctx, top, "go", "version", "-m", filepath.Join(top, d.Ref))
		if err != nil {
			return "", err
		}
		if err := sameModules(out, d.DependsOn); err != nil {
			return "", fmt.Errorf("%s: %w", d.Ref, err)
		}
		modules += len(d.DependsOn)
	}
	if len(bom.Dependencies) != 5 {
		return "", fmt.Errorf("the bill has %d programs, want 4", len(bom.Dependencies)-1)
	}
	return fmt.Sprintf("4 programs, %d modules", modules), nil
}

// sameModules compares the output of "go version -m" with the package URLs of a bill. The modules of this repository
// have the version of the release there, and the standard library is one more.
func sameModules(output string, urls []string) error {
	var want, got []string
	for _, m := range moduleLine.FindAllStringSubmatch(output, -1) {
		if m[1] == "=>" { // replaces the line before it
			if strings.HasPrefix(m[2], ".") {
				continue
			}
			want = want[:len(want)-1]
		}
		want = append(want, m[2]+"@"+m[3])
	}
	for i, w := range want {
		if strings.HasPrefix(w, "github.com/buildyard/") {
			want[i], _, _ = strings.Cut(w, "@")
		}
	}
	for _, u := range urls {
		u = strings.ReplaceAll(strings.TrimPrefix(u, "pkg:golang/"), "%2B", "+")
		switch {
		case strings.HasPrefix(u, "std@"):
			continue
		case strings.HasPrefix(u, "github.com/buildyard/"):
			u, _, _ = strings.Cut(u, "@")
		}
		got = append(got, u)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Errorf("the bill has %v, and the program %v", got, want)
	}
	return nil
}

func checkManuals(ctx context.Context, s *site) (string, error) {
	top, err := s.unpack(ctx)
	if err != nil {
		return "", err
	}
	pages, err := filepath.Glob(filepath.Join(top, "man", "*.1"))
	if err != nil {
		return "", err
	}
	if len(pages) < 20 {
		return "", fmt.Errorf("%d manual pages", len(pages))
	}
	for _, page := range pages {
		if _, err := rig.Output(ctx, top, "mandoc", "-T", "lint", "-W", "error", page); err != nil {
			return "", err
		}
	}
	text, err := rig.Output(ctx, top, "mandoc", "-T", "ascii", filepath.Join(top, "man", "buildyard-up.1"))
	if err == nil && !strings.Contains(text, "buildyard up") {
		err = fmt.Errorf("the page of up has no synopsis: %s", text)
	}
	return fmt.Sprintf("%d pages by mandoc", len(pages)), err
}

func checkCompletions(ctx context.Context, s *site) (string, error) {
	top, err := s.unpack(ctx)
	if err != nil {
		return "", err
	}
	n := 0
	for shell, pattern := range map[string]string{"bash": "*.bash", "zsh": "_*"} {
		files, err := filepath.Glob(filepath.Join(top, "completions", pattern))
		if err != nil {
			return "", err
		}
		if len(files) != 4 {
			return "", fmt.Errorf("%d completions of %s", len(files), shell)
		}
		for _, file := range files {
			if _, err := rig.Output(ctx, top, shell, "-n", file); err != nil {
				return "", err
			}
			n++
		}
	}
	return fmt.Sprintf("%d scripts by bash -n and zsh -n", n), nil
}

func checkFormula(ctx context.Context, s *site) (string, error) {
	if _, err := rig.Output(ctx, s.dist(), "ruby", "-c", "buildyard.rb"); err != nil {
		return "", err
	}
	formula, err := os.ReadFile(filepath.Join(s.dist(), "buildyard.rb"))
	sums, sumsErr := os.ReadFile(filepath.Join(s.dist(), "SHA256SUMS"))
	if err := errors.Join(err, sumsErr); err != nil {
		return "", err
	}
	n := 0
	for _, m := range regexp.MustCompile(`/([^/"]+)"\n\s+sha256 "([0-9a-f]{64})"`).FindAllStringSubmatch(string(formula),
		-1) {
		if !strings.Contains(string(sums), m[2]+"  "+m[1]+"\n") {
			return "", fmt.Errorf("the formula has another digest of %s", m[1])
		}
		n++
	}
	if n == 0 {
		return "", errors.New("the formula has no archive")
	}
	return fmt.Sprintf("%d archives, by ruby -c", n), nil
}
