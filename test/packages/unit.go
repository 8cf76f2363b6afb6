package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// unit is what a test needs of a unit file.
type unit struct {
	user, group string
	environment []string // NAME=VALUE, those of the file after those of the unit
	command     []string
	kill        string // KillMode
}

// parseUnit reads a unit of a tree. The units of the packages quote nothing.
func parseUnit(tree, name string) (u unit, err error) {
	raw, err := os.ReadFile(filepath.Join(tree, "usr/lib/systemd/system", name))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(raw)) {
		key, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		switch key {
		case "User":
			u.user = value
		case "Group":
			u.group = value
		case "Environment":
			u.environment = append(u.environment, value)
		case "EnvironmentFile":
			file, err := readEnvironment(filepath.Join(tree, strings.TrimPrefix(value, "-")))
			if err != nil {
				return u, err
			}
			u.environment = append(u.environment, file...)
		case "ExecStart":
			u.command = strings.Fields(value)
		case "KillMode":
			u.kill = value
		}
	}
	if len(u.command) == 0 {
		return u, fmt.Errorf("%s has no ExecStart", name)
	}
	return u, nil
}

func readEnvironment(file string) (list []string, err error) {
	raw, err := os.ReadFile(file)
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list, err
}

// inTree returns the arguments of unshare that run chroot in a tree that has /proc, which no other process sees.
func inTree(tree string, chroot ...string) []string {
	return append([]string{
		"--mount", "--propagation", "private", "sh", "-c", `mount -t proc proc "$0/proc" && exec chroot "$@"`, tree,
	}, chroot...)
}

// withoutProcesses adds a namespace of processes to the arguments of unshare. The users of a tree have numbers that
// other users of the machine may have: userdel refuses to delete a user of running processes.
func withoutProcesses(args []string) []string {
	return append([]string{"--pid", "--fork", "--kill-child"}, args...)
}

// chroot returns the arguments of unshare that run a command in a tree as the user of a unit, with its environment
// alone.
func (u unit) chroot(tree string, command ...string) []string {
	args := []string{}
	if u.user != "" {
		args = append(args, "--userspec="+u.user+":"+u.group)
	}
	args = append(args, tree, "/usr/bin/env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin")
	return inTree(tree, append(append(args, u.environment...), command...)...)
}

// exposure matches the result of "systemd-analyze security".
var exposure = regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+)`)

// checkUnits has systemd rate the units of the services. The agent starts VMs and manages the network of the machine:
// it is only checked that it does not end its VMs.
func checkUnits(ctx context.Context, s *site) (string, error) {
	tree, err := s.unpackDebs(ctx)
	if err != nil {
		return "", err
	}
	var evidence []string
	for _, name := range []string{"buildyard.service", "buildyard-controller.service", "buildyard-registry.service"} {
		file := filepath.Join(tree, "usr/lib/systemd/system", name)
		out, err := rig.Output(ctx, s.dir, "systemd-analyze", "security", "--no-pager", "--offline=true",
			"--threshold=30", file)
		if err != nil {
			return "", err
		}
		found := exposure.FindStringSubmatch(out)
		if found == nil {
			return "", fmt.Errorf("systemd-analyze does not rate %s: %s", name, out)
		}
		evidence = append(evidence, name+" "+found[1])
	}
	agent, err := parseUnit(tree, "buildnode.service")
	if err == nil && agent.kill != "process" {
		err = errors.New("buildnode.service ends the VMs of the agent: KillMode is not process")
	}
	return strings.Join(evidence, ", ") + " (at most 3.0)", err
}

// unpackDebs unpacks the packages of the release into a directory, without their scripts.
func (s *site) unpackDebs(ctx context.Context) (string, error) {
	tree := filepath.Join(s.dir, "unpacked")
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	list, err := filepath.Glob(filepath.Join(s.dist(), "*_amd64.deb"))
	if err != nil {
		return "", err
	}
	if len(list) != 3 {
		return "", fmt.Errorf("%d packages for amd64, want 3", len(list))
	}
	for _, deb := range list {
		if _, err := rig.Output(ctx, s.dir, "dpkg-deb", "--extract", deb, tree); err != nil {
			return "", err
		}
	}
	return tree, nil
}
