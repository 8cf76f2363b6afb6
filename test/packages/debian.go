package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

const suite = "bookworm"

// checkDebs installs the packages in a tree of Debian, starts what they install, upgrades, removes and purges them.
func checkDebs(ctx context.Context, s *site) (evidence string, err error) {
	tree := filepath.Join(s.dir, "tree")
	if err := rig.DebianTree(ctx, s.dir, tree, suite); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	before, err := listTree(tree)
	if err != nil {
		return "", err
	}
	if err := install(ctx, tree, s.dist()); err != nil {
		return "", err
	}
	first, err := useServices(ctx, tree, s.dir)
	if err != nil {
		return "", err
	}
	// An upgrade keeps settings that were changed, and the data.
	if err := install(ctx, tree, filepath.Join(s.newer, "dist")); err != nil {
		return "", fmt.Errorf("upgrade: %w", err)
	}
	second, err := useServices(ctx, tree, s.dir)
	if err != nil {
		return "", fmt.Errorf("after the upgrade: %w", err)
	}
	if first == second {
		return "", fmt.Errorf("the version is %s before and after the upgrade", first)
	}
	if err := remove(ctx, tree); err != nil {
		return "", err
	}
	if err := purgeWithVM(ctx, tree); err != nil {
		return "", err
	}
	if err := install(ctx, tree, filepath.Join(s.newer, "dist")); err != nil {
		return "", fmt.Errorf("install after a purge: %w", err)
	}
	if err := purge(ctx, tree, before); err != nil {
		return "", err
	}
	return first + " to " + second + ", then purged", nil
}

// install installs the packages of a release.
func install(ctx context.Context, tree, dist string) error {
	list, err := filepath.Glob(filepath.Join(dist, "*_amd64.deb"))
	if err != nil {
		return err
	}
	if len(list) != 3 {
		return fmt.Errorf("%d packages for amd64, want 3", len(list))
	}
	args := []string{tree, "dpkg", "--install", "--force-confold"}
	for _, deb := range list {
		raw, err := os.ReadFile(deb)
		if err != nil {
			return err
		}
		name := "/tmp/" + filepath.Base(deb)
		if err := os.WriteFile(filepath.Join(tree, name), raw, 0o644); err != nil {
			return err
		}
		args = append(args, name)
	}
	_, err = rig.Output(ctx, tree, "unshare", withoutProcesses(inTree(tree, args...))...)
	for _, deb := range list {
		err = errors.Join(err, os.Remove(filepath.Join(tree, "tmp", filepath.Base(deb))))
	}
	return err
}

// useServices starts the services as their units say, joins a node and returns the version of the controller.
func useServices(ctx context.Context, tree, logs string) (version string, err error) {
	addr, err := rig.FreeAddr(ctx)
	registry, registryErr := rig.FreeAddr(ctx)
	if err := errors.Join(err, registryErr); err != nil {
		return "", err
	}
	settings := "SVC_LISTEN_ADDR=" + addr + "\nSVC_REGISTRY_LISTEN_ADDRESS=" + registry +
		"\nSVC_LOCAL_LISTEN_ADDR=none\n"
	if err := setSettings(filepath.Join(tree, "etc/buildyard/controller.env"), settings); err != nil {
		return "", err
	}
	u, err := parseUnit(tree, "buildyard.service")
	if err != nil {
		return "", err
	}
	if u.user != "build-cloud" {
		return "", fmt.Errorf("the controller runs as %q", u.user)
	}
	p := rig.NewProcess(logs, "controller", "unshare", u.chroot(tree, u.command...)...)
	if err := p.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.End()) }()
	if err := rig.Ready(ctx, p, "http://"+addr); err != nil {
		return "", err
	}
	if _, err := rig.Output(ctx, tree, "unshare", u.chroot(tree, "/usr/bin/buildyard", "healthcheck")...); err != nil {
		return "", err
	}
	var status struct{ Version string }
	if err := rig.NewClient("http://"+addr).Send(ctx, "GET", "/api/v1/status", nil, &status); err != nil {
		return "", err
	}
	return status.Version, useAgent(ctx, tree, logs, addr)
}

// setSettings replaces what an earlier call has added to an environment file.
func setSettings(file, settings string) error {
	const mark = "# Added by the test\n"
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, _, _ := strings.Cut(string(raw), mark)
	return os.WriteFile(file, []byte(text+mark+settings), 0o640)
}

// useAgent joins the node of the tree and runs its agent, with simulated VMs, until it is Active.
func useAgent(ctx context.Context, tree, logs, controller string) (err error) {
	u, err := parseUnit(tree, "buildnode.service")
	if err != nil {
		return err
	}
	cloud, err := parseUnit(tree, "buildyard.service")
	if err != nil {
		return err
	}
	token, err := rig.Output(ctx, tree, "unshare", cloud.chroot(tree, "/usr/bin/buildyard", "node", "token")...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, "tmp/token"), []byte(token), 0o600); err != nil {
		return err
	}
	_, err = rig.Output(ctx, tree, "unshare", u.chroot(tree, "/usr/bin/buildnode", "join", "http://"+controller,
		"--token-file", "/tmp/token", "--name", "packaged", "--data-dir", "/var/lib/buildyard/node", "--reserve-space",
		"1MB")...)
	if err := errors.Join(err, os.Remove(filepath.Join(tree, "tmp/token"))); err != nil {
		return err
	}
	agent := rig.NewProcess(logs, "agent", "unshare", u.chroot(tree, append(u.command, "--driver", "sim")...)...)
	if err := agent.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.End()) }()
	return awaitActive(ctx, agent, rig.NewClient("http://"+controller))
}

func awaitActive(ctx context.Context, agent *rig.Process, client rig.Client) error {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		var nodes []struct {
			State string `json:"state"`
		}
		err := client.Send(ctx, "GET", "/api/v1/node", nil, &nodes)
		if err == nil && len(nodes) == 1 && nodes[0].State == "Active" {
			return nil
		}
		if !agent.Running() || !rig.Pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("the node did not become Active: %s", agent.Tail())
}

var packageNames = []string{"buildyard", "buildnode", "buildyard-scanners"}

// remove removes the packages, which leaves settings and data.
func remove(ctx context.Context, tree string) error {
	if _, err := rig.Output(ctx, tree, "unshare", withoutProcesses(inTree(tree,
		append([]string{tree, "dpkg", "--remove"}, packageNames...)...))...); err != nil {
		return err
	}
	for _, kept := range []string{
		"etc/buildyard/controller.env", "var/lib/buildyard/controller", "var/lib/buildyard/node",
	} {
		if _, err := os.Stat(filepath.Join(tree, kept)); err != nil {
			return fmt.Errorf("dpkg --remove: %w", err)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, "usr/bin/buildyard")); err == nil {
		return errors.New("dpkg --remove keeps the program")
	}
	return nil
}

// purgeWithVM purges the agent while a process has a disk of the node open, which must stay.
func purgeWithVM(ctx context.Context, tree string) error {
	const script = "sleep 600 3>/var/lib/buildyard/node/disk & dpkg --purge buildnode 2>&1"
	out, err := rig.Output(ctx, tree, "unshare", withoutProcesses(inTree(tree, tree, "sh", "-c", script))...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "buildnode disjoin") {
		return fmt.Errorf("a purge does not say that VMs run: %s", out)
	}
	if _, err := os.Stat(filepath.Join(tree, "var/lib/buildyard/node/disk")); err != nil {
		return fmt.Errorf("a purge removes the disk of a VM that runs: %w", err)
	}
	return nil
}

// purge purges the packages, which leaves nothing.
func purge(ctx context.Context, tree string, before []string) error {
	if _, err := rig.Output(ctx, tree, "unshare", withoutProcesses(inTree(tree,
		append([]string{tree, "dpkg", "--purge"}, packageNames...)...))...); err != nil {
		return err
	}
	after, err := listTree(tree)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(after, func(name string) bool {
		_, found := slices.BinarySearch(before, name)
		return found
	})
	if len(left) > 0 {
		return fmt.Errorf("a purge leaves %v", left)
	}
	raw, err := os.ReadFile(filepath.Join(tree, "etc/passwd"))
	if strings.Contains(string(raw), "build-cloud") || strings.Contains(string(raw), "buildyard") {
		return errors.New("a purge leaves users")
	}
	return err
}

// ownFiles are files of dpkg and of the tools for users, which change with every installation.
var ownFiles = []string{
	"var/lib/dpkg/", "var/log/", "var/cache/", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid",
	"etc/subgid", "run/", "dev/", "proc/", "sys/", "etc/.pwd.lock",
}

// listTree returns the sorted names of all files in a tree.
func listTree(tree string) (names []string, err error) {
	err = fs.WalkDir(os.DirFS(tree), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && !slices.ContainsFunc(ownFiles, func(own string) bool { return strings.HasPrefix(name, own) }) {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}
