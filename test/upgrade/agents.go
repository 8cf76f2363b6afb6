package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// renewPause is longer than an agent without purposes of tokens waits between two requests for one: of
// two orders that each need a new token within that time it fails the second.
const renewPause = 6 * time.Second

// save saves and restarts instances that the old controller started.
func (c *cloud) save(ctx context.Context) (string, error) {
	id, err := c.begin(ctx, map[string]any{
		"vmid": c.templates["debian"], "tag": "v2", "name": "saved-later", "node_id": c.nodes[agentName],
	}, nil)
	if err != nil {
		return "", err
	}
	if _, err := c.inState(ctx, id, "Started"); err != nil {
		return "", err
	}
	rig.Pause(ctx, renewPause)
	for _, line := range [][]string{
		{
			"image", "create", "saved-later", "--template", "debian", "--tag", "v4", "--stop", "--wait", "--timeout",
			"40s",
		},
		{"instance", "restart", "on-agent", "--wait", "--timeout", "40s"},
	} {
		if _, err := c.yard(ctx, c.b.new, line...); err != nil {
			return "", err
		}
	}
	return "a new version, and the same instance again", c.startOn(ctx, "debian", "v4", agentName)
}

// cacheJobs distributes and removes.
func (c *cloud) cacheJobs(ctx context.Context) (string, error) {
	rig.Pause(ctx, renewPause)
	for _, line := range [][]string{
		{"template", "distribute", "debian", "--tag", "v3", "--wait", "--timeout", "40s"},
		{"template", "remove", "alpine", "--wait", "--timeout", "40s", "--yes"},
	} {
		if _, err := c.yard(ctx, c.b.new, line...); err != nil {
			return "", err
		}
	}
	return "distributed to and removed from all nodes", nil
}

// replaceAgents starts the new agents on the directories of the old ones.
func (c *cloud) replaceAgents(ctx context.Context) (string, error) {
	for _, p := range []*rig.Process{c.node, c.fleet} {
		stop := p.End
		if c.kill {
			stop = p.Kill
		}
		if err := stop(); err != nil {
			return "", err
		}
	}
	c.node, c.fleet = c.agent(c.b.new), c.sim(c.b.new)
	if err := errors.Join(c.node.Start(), c.fleet.Start()); err != nil {
		return "", err
	}
	for name, id := range c.nodes {
		if err := c.active(ctx, id); err != nil {
			return "", fmt.Errorf("%s: %w; the agent said: %s", name, err, c.node.Tail())
		}
	}
	if !rig.Pause(ctx, 3*time.Second) { // reports of all VMs
		return "", ctx.Err()
	}
	if _, err := c.running(ctx); err != nil {
		return "", err
	}
	var line string
	err := until(ctx, func() error { // some have no value before the first poll is answered
		now, err := scrape(ctx, c.metricsAddresses()["node"], nil)
		if err == nil {
			line, err = compareMetrics(c.exported["node"], now)
		}
		return err
	})
	return "the VMs are kept; " + line, err
}

// newAgents uses the new agents, and ends what the old ones started.
func (c *cloud) newAgents(ctx context.Context) (string, error) {
	for name := range c.nodes {
		if err := c.startOn(ctx, "debian", "v1", name); err != nil {
			return "", err
		}
	}
	if _, err := c.yard(ctx, c.b.new, "template", "distribute", "alpine", "--wait", "--timeout", "40s"); err != nil {
		return "", err
	}
	return "VMs of the old agents are ended by the new ones",
		errors.Join(c.terminate(ctx, c.instances["on-agent"]), c.terminate(ctx, c.instances["on-fleet"]))
}
