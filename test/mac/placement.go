package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// placementCases are where guests may run, in a cloud with a Mac and, for some cases, Linux nodes.
var placementCases = []testCase{
	{"at most two macOS guests on a Mac", twoGuests},
	{"guests of other programs count", otherGuests},
	{"guests that the node does not see", unseenGuests},
	{"no node runs the template", noNode},
	{"a mixed cloud", mixedCloud},
}

// awaitReason waits until a waiting instance has a message with a text.
func (a *caseRun) awaitReason(ctx context.Context, id, text string) error {
	last, nodes := "", ""
	err := await(ctx, "the reason "+text, func() (bool, error) {
		in, err := a.api.Explain(ctx, id)
		last, nodes = in.InstanceState+": "+in.Message, ""
		for _, n := range in.Explain.Nodes {
			nodes += ", " + n.NodeName + " " + n.Reason
		}
		return err == nil && in.InstanceState == stateScheduling && strings.Contains(last+nodes, text), err
	})
	if err != nil {
		return fmt.Errorf("%w; the instance is %s%s", err, last, nodes)
	}
	a.note("it waits: %s%s", last, nodes)
	return nil
}

// twoGuests: a third guest waits for one of the two, although the capacity of the node is larger.
func twoGuests(ctx context.Context, a *caseRun) error {
	var ids []string
	for range 2 {
		id, err := a.start(ctx, client.StartRequest{})
		if err != nil {
			return err
		}
		if _, err := a.awaitState(ctx, id, stateStarted); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	a.note("two guests run on a Mac with capacity %d", macCapacity)
	third, err := a.start(ctx, client.StartRequest{})
	if err != nil {
		return err
	}
	if err := a.awaitReason(ctx, third, "it has 2 macOS guests, the most on a Mac"); err != nil {
		return err
	}
	if err := a.terminate(ctx, ids[0]); err != nil {
		return err
	}
	if _, err := a.awaitState(ctx, third, stateStarted); err != nil {
		return err
	}
	a.note("it starts after one of them has ended")
	return errors.Join(a.terminate(ctx, ids[1]), a.terminate(ctx, third), a.mac.clean(ctx))
}

// otherGuests: next to a guest of the user's own tart one guest of the cloud runs, and another one waits for its end.
func otherGuests(ctx context.Context, a *caseRun) error {
	other, err := a.mac.runOther(ctx, a.mac.userHome(), "")
	var first, second string
	if err == nil {
		first, second, err = a.twoNextToOther(ctx)
		a.check(other.isRunning(), "the guest of the other program runs")
	}
	if err = errors.Join(err, other.end(ctx)); err != nil {
		return err
	}
	if _, err := a.awaitState(ctx, second, stateStarted); err != nil {
		return err
	}
	a.note("the second one starts when that has ended")
	return errors.Join(a.terminate(ctx, first), a.terminate(ctx, second), a.mac.clean(ctx))
}

// twoNextToOther starts two instances, the second of which has to wait.
func (a *caseRun) twoNextToOther(ctx context.Context) (first, second string, err error) {
	if first, err = a.start(ctx, client.StartRequest{}); err != nil {
		return first, "", err
	}
	if _, err = a.awaitState(ctx, first, stateStarted); err != nil {
		return first, "", err
	}
	a.note("one runs next to a guest of another program")
	if second, err = a.start(ctx, client.StartRequest{}); err != nil {
		return first, second, err
	}
	return first, second, a.awaitReason(ctx, second, "it has 2 macOS guests, the most on a Mac")
}

// unseenGuests: macOS counts the guests of other users too, which the node does not see. A guest that macOS refuses
// says what to do.
func unseenGuests(ctx context.Context, a *caseRun) error {
	other, err := a.mac.runOther(ctx, a.mac.otherHome(), "")
	if err == nil {
		err = a.withOther(ctx)
		a.check(other.isRunning(), "the guest of the other program runs")
	}
	if err = errors.Join(err, other.end(ctx)); err != nil {
		return err
	}
	return a.works(ctx, client.StartRequest{})
}

func (a *caseRun) withOther(ctx context.Context) error {
	first, err := a.start(ctx, client.StartRequest{})
	if err != nil {
		return err
	}
	if _, err := a.awaitState(ctx, first, stateStarted); err != nil {
		return err
	}
	a.note("one runs next to a guest of another program")
	err = a.failing(ctx, client.StartRequest{},
		"Apple's license permits two on a Mac, those of other programs included")
	return errors.Join(err, a.terminate(ctx, first))
}

// joinLinux adds a simulated Linux node of an architecture, unless the cloud has it.
func (x *site) joinLinux(ctx context.Context, arch string) error {
	if x.linux[arch] != nil {
		return nil
	}
	token, err := x.cloud.Token(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(x.dir, "join-token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return err
	}
	p := rig.NewProcess(x.dir, "linux-"+arch, x.Path("buildnode"), "sim", "--nodes", "1", "--name", "linux-"+arch,
		"--arch", arch, "--controller", x.cloud.Controller, "--token-file", file)
	if err := p.Start(); err != nil {
		return err
	}
	if x.linux == nil {
		x.linux = map[string]*rig.Process{}
	}
	x.linux[arch] = p
	return await(ctx, "the Linux node of "+arch, func() (bool, error) {
		names, err := x.nodeNames(ctx)
		return slices.Contains(names, linuxName(arch)), err
	})
}

// linuxName is the name of the simulated node of an architecture.
func linuxName(arch string) string { return "linux-" + arch + "-0001" }

// nodeNames returns the names of the active nodes.
func (x *site) nodeNames(ctx context.Context) (names []string, err error) {
	nodes, err := x.api.Nodes(ctx, client.ListOptions{})
	for _, n := range nodes {
		if n.State == "Active" {
			names = append(names, n.NodeName)
		}
	}
	return names, err
}

// pushLinux pushes a template of Linux for an architecture and returns its ID.
func (x *site) pushLinux(ctx context.Context, name, arch string) (string, error) {
	disk := filepath.Join(x.dir, name+".img")
	if err := errors.Join(os.WriteFile(disk, []byte("Linux"), 0o600), os.Truncate(disk, 1<<20)); err != nil {
		return "", err
	}
	return x.cloud.Push(ctx, name, "import", disk, "--name", name, "--arch", arch)
}

// noNode: an instance whose template no node runs names the reason of each node, and starts once there is such a node.
func noNode(ctx context.Context, a *caseRun) error {
	template, err := a.pushLinux(ctx, "lonely", "arm64")
	if err == nil {
		err = a.joinLinux(ctx, "amd64")
	}
	if err != nil {
		return err
	}
	ids, err := a.api.Start(ctx, client.StartRequest{TemplateID: template})
	if err != nil {
		return err
	}
	for _, reason := range []string{
		"no node has architecture arm64", "runs macOS guests only",
		"has architecture amd64, not arm64",
	} {
		if err := a.awaitReason(ctx, ids[0], reason); err != nil {
			return err
		}
	}
	if err := a.joinLinux(ctx, "arm64"); err != nil {
		return err
	}
	if _, err := a.awaitState(ctx, ids[0], stateStarted); err != nil {
		return err
	}
	a.note("it starts on a node that joins later")
	return a.terminate(ctx, ids[0])
}
