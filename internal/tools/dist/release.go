package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/release"
)

// programs are the programs of a release.
var programs = []string{"buildyard", "buildnode", "imagescan", "hostscan"}

// distribution is a release that is being made.
type distribution struct {
	root      string // of the repository
	out       string // the files of the release
	work      string // what they are made of
	nfpm      string
	platforms []release.Platform
	ldflags   string
	version   string // X.Y.Z of a release, or X.Y.Z-dev+HASH: in the names of files
	full      string // as the programs print it
	commit    string
	date      time.Time // of the commit
}

// newRelease reads the version from git and empties the directories.
func newRelease(ctx context.Context, out, nfpm string) (*distribution, error) {
	r := &distribution{nfpm: nfpm, platforms: release.Platforms}
	var err error
	if r.root, err = os.Getwd(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(r.root, "cmd", "buildyard")); err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	lines, err := r.command(ctx, nil, "bash", "scripts/version.sh")
	if err != nil {
		return nil, err
	}
	stamp := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	if len(stamp) != 3 || stamp[1] == "" {
		return nil, fmt.Errorf("git does not tell which commit this is: scripts/version.sh printed %q", lines)
	}
	obs.Version, obs.Commit = stamp[0], stamp[1]
	r.full, r.commit = obs.FullVersion(), stamp[1]
	if r.version = r.full; !strings.Contains(stamp[0], "-") {
		r.version = stamp[0]
	}
	if r.date, err = time.Parse(time.RFC3339, stamp[2]); err != nil {
		return nil, err
	}
	flags, err := r.command(ctx, nil, "bash", "scripts/version.sh", "ldflags")
	if err != nil {
		return nil, err
	}
	r.ldflags = "-s -w -buildid= " + strings.TrimSpace(flags)
	return r, r.clear()
}

// clear empties the directory of the release. It refuses one with other files: a mistyped -out must not cost them.
func (r *distribution) clear() error {
	r.work = filepath.Join(r.out+".work", "")
	if _, err := os.Stat(r.out); err == nil {
		if _, err := os.Stat(filepath.Join(r.out, "SHA256SUMS")); err != nil {
			if left, _ := os.ReadDir(r.out); len(left) > 0 {
				return fmt.Errorf("%s is not empty and has no release: remove it", r.out)
			}
		}
	}
	for _, dir := range []string{r.out, r.work} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// restrict leaves out the other platforms.
func (r *distribution) restrict(names []string) error {
	r.platforms = slices.DeleteFunc(slices.Clone(r.platforms), func(p release.Platform) bool {
		return !slices.Contains(names, p.String())
	})
	if len(r.platforms) != len(names) {
		return fmt.Errorf("unknown platform in %v: want some of %v", names, release.Platforms)
	}
	return nil
}

// command runs a program in the root of the repository and returns its standard output.
func (r *distribution) command(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.Env = append(append(os.Environ(), "TZ=UTC", "LC_ALL=C"), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		said := bytes.TrimSpace(append(errOut.Bytes(), out.Bytes()...))
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// epoch is SOURCE_DATE_EPOCH.
func (r *distribution) epoch() string { return strconv.FormatInt(r.date.Unix(), 10) }

// program returns the path of a built program.
func (r *distribution) program(p release.Platform, name string) string {
	return filepath.Join(r.work, "bin", p.OS+"_"+p.Arch, name)
}

// buildPrograms builds every program for every platform.
func (r *distribution) buildPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		if err := r.buildFor(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (r *distribution) buildFor(ctx context.Context, p release.Platform) error {
	dir := filepath.Dir(r.program(p, "x"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	env := []string{
		"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off",
		"GOEXPERIMENT=",
	}
	_, err := r.command(ctx, env, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", r.ldflags,
		"-o", dir+string(filepath.Separator), "./cmd/...")
	return err
}

// host returns the platform of this machine's programs, building them if they are not part of the release.
func (r *distribution) host(ctx context.Context) (release.Platform, error) {
	lines, err := r.command(ctx, nil, "go", "env", "GOHOSTOS", "GOHOSTARCH")
	if err != nil {
		return release.Platform{}, err
	}
	words := strings.Fields(lines)
	p := release.Platform{OS: words[0], Arch: words[1]}
	if slices.Contains(r.platforms, p) {
		return p, nil
	}
	return p, r.buildFor(ctx, p)
}

// writeManuals has the programs of this machine write their manual pages and completions.
func (r *distribution) writeManuals(ctx context.Context) error {
	host, err := r.host(ctx)
	if err != nil {
		return err
	}
	man, completions := filepath.Join(r.work, "man"), filepath.Join(r.work, "completions")
	for _, dir := range []string{man, completions} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// The defaults of some flags depend on the user.
	env := []string{"HOME=/nonexistent", "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_CACHE_HOME="}
	for _, name := range programs {
		if _, err := r.command(ctx, env, r.program(host, name), "man-pages", man); err != nil {
			return err
		}
		for shell, file := range map[string]string{"bash": name + ".bash", "zsh": "_" + name, "fish": name + ".fish"} {
			text, err := r.command(ctx, env, r.program(host, name), "completion", shell)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(completions, file), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
