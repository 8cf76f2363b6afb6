package buildyard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

const secondNode = "second"

// startBeforePull starts an instance on a second node, which has nothing of the version, and shows that its VM runs
// before the pull has ended.
func (d *demo) startBeforePull(ctx context.Context) error {
	if d.Driver == "sim" { // whose VMs read no disk
		return nil
	}
	if err := d.startNode(ctx, secondNode, cache.LazyOn); err != nil {
		return err
	}
	node, err := d.awaitNode(ctx, secondNode)
	if err != nil {
		return err
	}
	ids, err := d.controllerClient.Start(ctx, client.StartRequest{
		TemplateID: d.templateID, Tag: "v1", Name: "demo", NodeID: node.NodeID,
	})
	if err != nil {
		return err
	}
	second := d.nodes[len(d.nodes)-1]
	seen, err := d.awaitLazyStart(ctx, second, ids[0])
	if err != nil {
		return err
	}
	if seen.part.Total == 0 {
		d.printStep("lazy", "%s is Started on a second node; its VM was not seen to run before the pull ended",
			ids[0])
	} else {
		d.printStep("lazy", "%s ran on a second node with %d of %d bytes of v1; it was Started after %s, and v1 "+
			"complete after %s", ids[0], seen.part.Bytes, seen.part.Total, seen.started, seen.complete)
	}
	return d.terminateInstance(ctx)
}

// lazyStart is what was seen of a start before its pull ended.
type lazyStart struct {
	part              lazyfill.Disk // what was here when the VM last ran without all of it; total 0: it never did
	started, complete time.Duration // since the step began, rounded; 0: not yet
}

// missing returns how much of the disks is on a node that pulls a version lazily. The total is 0 when it has all.
func missing(node *buildnode.Node) (all lazyfill.Disk) {
	for _, pull := range node.LazyPulls() {
		if pull.IsComplete {
			continue
		}
		for _, disk := range pull.Disks {
			all.Bytes, all.Total = all.Bytes+disk.Bytes, all.Total+disk.Total
		}
	}
	return all
}

// awaitLazyStart waits until an instance is Started and its node has all of its version. A node whose data directory
// has a long path pulls all of a version before VMs start, and logs a warning.
func (d *demo) awaitLazyStart(ctx context.Context, node *buildnode.Node, id string) (seen lazyStart, err error) {
	since := func() time.Duration { return time.Since(d.stepStartedAt).Round(10 * time.Millisecond) }
	err = d.pollUntil(ctx, 3*time.Minute, "the start and the pull", func() (bool, error) {
		now, err := d.controllerClient.Explain(ctx, id)
		if err != nil {
			return false, err
		}
		switch now.Instance.InstanceState {
		case "Started":
			seen.started = cmp.Or(seen.started, since())
		case "Error":
			return false, fmt.Errorf("instance %s: %s", id, now.Instance.Message)
		}
		d.hypervisorPID, err = d.findHypervisorPID(ctx)
		if err != nil || d.hypervisorPID == 0 {
			return false, err
		}
		if part := missing(node); part.Bytes < part.Total {
			seen.part = part
			return false, nil
		}
		seen.complete = cmp.Or(seen.complete, since())
		return seen.started > 0, nil
	})
	return seen, err
}
