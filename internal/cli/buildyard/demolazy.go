package buildyard

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/cache"
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
	fill, err := d.awaitFill(ctx, ids[0])
	if err != nil {
		return err
	}
	if _, err := d.awaitStarted(ctx, ids[0]); err != nil {
		return err
	}
	if fill == nil {
		d.printStep("lazy", "%s is Started on a second node; its VM was not seen to run before the pull ended", ids[0])
		return d.terminateInstance(ctx)
	}
	took := time.Since(d.stepStartedAt)
	err = d.pollUntil(ctx, time.Minute, "the pull to end", func() (bool, error) {
		now, err := d.controllerClient.Explain(ctx, ids[0])
		return now.Explain.Fill == nil, err
	})
	if err != nil {
		return err
	}
	d.printStep("lazy", "%s ran on a second node with %d of %d bytes of v1; it was Started after %s, and v1 complete "+
		"after %s", ids[0], fill.Bytes, fill.Total, took.Round(10*time.Millisecond),
		time.Since(d.stepStartedAt).Round(10*time.Millisecond))
	return d.terminateInstance(ctx)
}

// awaitFill waits until the VM of an instance runs from a disk of which a part is missing. The result is nil if that
// was not seen before the instance was Started: nodes report it every few seconds, and a node whose data directory has
// a long path pulls all of a version first, and logs a warning.
func (d *demo) awaitFill(ctx context.Context, id string) (fill *api.DiskFill, err error) {
	err = d.pollUntil(ctx, time.Minute, "the VM to run", func() (bool, error) {
		now, err := d.controllerClient.Explain(ctx, id)
		if err != nil {
			return false, err
		}
		switch now.Instance.InstanceState {
		case "Started":
			return true, nil
		case "Error":
			return false, fmt.Errorf("instance %s: %s", id, now.Instance.Message)
		}
		d.hypervisorPID, err = d.findHypervisorPID(ctx)
		if err != nil || d.hypervisorPID == 0 || now.Explain.Fill == nil {
			return false, err
		}
		fill = now.Explain.Fill
		return true, nil
	})
	return fill, err
}
