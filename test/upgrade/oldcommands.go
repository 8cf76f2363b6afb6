package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// oldLines are the commands of the old program that call a service, in an order in which they can
// run. "$NAME" is a value of the run. A line that begins with "~" does not end before it gets a
// signal; its output is required. One that begins with "!" is refused with status 1, by the old services
// too, and "pause" waits until the agents may renew their registry tokens again.
var oldLines = []string{
	"status", "stats", "node list -o wide", "node list --filter state:active -o json", "node show agent", "node token",
	"node scan", "!node update agent",
	"node config agent --capacity 8 --central-logging=true",
	"node drain fleet-0002 --reason check --wait --timeout 30s", "node undrain fleet-0002", "node adopt",
	"group create temp --description x --fallback builders", "group list",
	"group update temp --fallback none --name temporary",
	"node group add agent temporary", "node group remove agent temporary", "group delete temporary --yes",
	"template list", "template show debian",
	"template distribute debian --tag v3 --node fleet-0001 --wait --timeout 30s", "template distributions",
	"template remove debian --node fleet-0002 --yes", "template removals",
	"instance start debian:v1 --name cli --external-id cli-1 --ttl 1h --metadata a=b --priority 5 --port web:8080 " +
		"--wait --timeout 30s -o json",
	"instance list -o wide", "instance show cli", "instance explain cli",
	"instance update cli --external-id cli-2 --metadata a=c", "instance wait cli --timeout 30s",
	"~instance watch", "~instance console cli", "log vm cli", "instance restart cli --wait --timeout 30s",
	"pause", "instance save cli --new-template from-cli --tag v1 --stop --wait --timeout 40s", "image list -o json",
	"instance start debian:v1 --name other --wait --timeout 30s", "pause",
	"image create other --template from-cli --tag v2 --stop -o json", "image show $image",
	"image wait $image --timeout 40s",
	"template revert from-cli --tag v2 --yes", "instance start debian:v1 --name third --wait --timeout 30s",
	"instance terminate third --yes", "instance history --limit 5",
	"template delete from-cli --yes", "template distribute alpine -o json", "template cancel $distribution",
	"event list --limit 10", "~event watch --after $event", "file list",
	"file get central-logs/event/event.log --file -",
	"log services", "log list controller", "log tail controller -n 10", "log search controller .",
	"log archive controller --file -",
	"key create temp --ttl 12h --groups ci --out $dir/temp.key", "key list", "key show temp",
	"key update temp --ttl 90d --groups ci,other", "key delete temp --yes",
	"permission known", "permission set temp list_vms,start_vm", "permission list", "!permission list temp --resources",
	"permission delete temp --yes",
	"mac list --limit 5", "mac list --free --count", "mac populate", "usb", "vlan",
	"maintenance on --for 1h --reason check", "maintenance status", "maintenance off",
	"mac purge --yes", "mac populate", "backup $dir/again.backup", "node delete fleet-0002 --yes",
}

// cloudSection is the title of those commands in the help.
const cloudSection = "Commands that ask a cloud"

// oldCommands runs every old command that calls a service against the new services.
func (c *cloud) oldCommands(ctx context.Context) (string, error) {
	all, err := walkHelp(ctx, c.b.old.path("buildyard"))
	if err != nil {
		return "", err
	}
	open := map[string]bool{}
	for path, h := range all {
		first, _, _ := strings.Cut(path, " ")
		if len(h.commands) == 0 && slices.Contains(all[""].calling, first) {
			open[path] = true
		}
	}
	count := len(open)
	var errs []error
	for _, line := range oldLines {
		words := strings.Fields(strings.TrimLeft(line, "~!"))
		for n := range words {
			delete(open, strings.Join(words[:n+1], " "))
		}
		if err := c.oldLine(ctx, words, line[0]); err != nil {
			errs = append(errs, err)
		}
	}
	delete(c.nodes, "fleet-0002") // by the last line
	for _, path := range slices.Sorted(maps.Keys(open)) {
		errs = append(errs, fmt.Errorf("this test has no line for %q", path))
	}
	return fmt.Sprintf("%d lines of %d commands", len(oldLines), count), errors.Join(errs...)
}

// oldLine runs one line; kind is its first letter.
func (c *cloud) oldLine(ctx context.Context, words []string, kind byte) error {
	if words[0] == "pause" {
		rig.Pause(ctx, renewPause)
		return nil
	}
	args := make([]string, len(words))
	for i, w := range words {
		w = strings.ReplaceAll(w, "$dir", c.dir)
		if name, ok := strings.CutPrefix(w, "$"); ok {
			w = c.values[name]
		}
		args[i] = w
	}
	if words[0] == "node" && words[1] == "token" {
		_, err := c.command(ctx, c.b.old.path("buildyard"), append(args, "--data-dir", c.file("controller-data"))...)
		return err
	}
	if kind == '~' {
		return c.stream(ctx, args)
	}
	out, err := c.yard(ctx, c.b.old, args...)
	if kind == '!' {
		if err == nil || !strings.Contains(err.Error(), "status 1:") {
			return fmt.Errorf("%s: %w, want status 1", strings.Join(args, " "), err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	for name, line := range map[string]string{"image": "image create", "distribution": "template distribute"} {
		if strings.HasPrefix(strings.Join(words, " "), line) {
			if m := anyID.FindString(out); m != "" {
				c.values[name] = m
			}
		}
	}
	return nil
}

// streamTime is how long a command that does not end may take to print something.
const streamTime = 20 * time.Second

// stream runs a command that does not end until it has printed something.
func (c *cloud) stream(ctx context.Context, args []string) error {
	out := c.file("stream.out")
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	cmd := exec.CommandContext(ctx, c.b.old.path("buildyard"),
		append(args, "--controller", "http://"+c.controller, "--token-file", c.ownToken())...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		return err
	}
	var raw []byte
	for began := time.Now(); len(bytes.TrimSpace(raw)) == 0 && time.Since(began) < streamTime &&
		rig.Pause(ctx, 100*time.Millisecond); {
		if raw, err = os.ReadFile(out); err != nil {
			break
		}
	}
	err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	if err == nil && (len(bytes.TrimSpace(raw)) == 0 || bytes.Contains(raw, []byte("buildyard: "))) {
		err = fmt.Errorf("%s: %q", strings.Join(args, " "), raw)
	}
	return err
}
