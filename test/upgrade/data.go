package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// agentName is the name of the node whose agent is replaced.
const agentName = "agent"

// fill makes a cloud of the old programs and everything that is looked for after the upgrade.
func (c *cloud) fill(ctx context.Context) (string, error) {
	if err := c.prepare(ctx); err != nil {
		return "", err
	}
	for _, name := range c.serviceNames() {
		if err := c.start(ctx, c.b.old, name); err != nil {
			return "", err
		}
	}
	for _, make := range []func(context.Context) error{
		c.makeTemplates, c.makeAccess, c.makeNodes, c.makeInstances, c.makeJobs,
	} {
		if err := make(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d templates, %d nodes, %d instances", len(c.templates), len(c.nodes), len(c.instances)), nil
}

// makeTemplates pushes a template with three tags and one with one.
func (c *cloud) makeTemplates(ctx context.Context) error {
	program, home := c.b.old.path("buildnode"), []string{"--data-dir", c.file("author")}
	run := func(args ...string) (string, error) { return c.command(ctx, program, append(args, home...)...) }
	for _, name := range []string{"debian", "alpine"} {
		disk := c.file(name + ".raw")
		if err := os.WriteFile(disk, []byte(strings.Repeat(name, 1<<16)), 0o600); err != nil {
			return err
		}
		if err := os.Truncate(disk, 1<<20); err != nil {
			return err
		}
		if _, err := run("vm", "import", disk, "--name", name, "--cpu", "1", "--ram", "256M"); err != nil {
			return err
		}
	}
	for _, push := range [][]string{{"debian", "v1"}, {"debian", "v2"}, {"debian", "v3"}, {"alpine", "v1"}} {
		if _, err := run("registry", "--remote", "http://"+c.registry, "--token-file", c.ownToken(), "push", push[0],
			"--tag", push[1], "-d", "the "+push[1]); err != nil {
			return err
		}
	}
	list, err := run("vm", "list", "--output", "json")
	if err != nil {
		return err
	}
	var all []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		return err
	}
	for _, t := range all {
		c.templates[t.Name] = t.ID
	}
	return nil
}

// ownToken is a file with the root token that only its owner can read, which commands require.
func (c *cloud) ownToken() string { return c.file("own-token") }

// makeAccess makes groups, an API key and its permissions.
func (c *cloud) makeAccess(ctx context.Context) error {
	for _, line := range [][]string{
		{"group", "create", "builders", "--description", "old machines"},
		{"group", "create", "later", "--fallback", "none"},
		{"permission", "set", "ci", "list_vms,start_vm,terminate_vm,update_vm,list_nodes"},
		{"key", "create", "ci", "--ttl", "90d", "--groups", "ci", "--out", c.file("ci.key")},
		{"mac", "populate"},
	} {
		if line[1] == "create" && line[2] == "later" {
			line = line[:3]
		}
		if _, err := c.yard(ctx, c.b.old, line...); err != nil {
			return err
		}
	}
	return nil
}

// join joins a node with the old programs. options are additional ones of the command.
func (c *cloud) join(ctx context.Context, options ...string) error {
	token, err := c.command(ctx, c.b.old.path("buildyard"), "node", "token", "--data-dir", c.file("controller-data"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("join-token"), []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	_, err = c.command(ctx, c.b.old.path("buildnode"), append([]string{
		"join", "http://" + c.controller, "--token-file", c.file("join-token"), "--name", agentName,
		"--host", "127.0.0.1", "--reserve-space", "1GB", "--data-dir", c.file(agentName),
	}, options...)...)
	return err
}

// makeNodes joins a node with an agent and two simulated ones, and configures one of them.
func (c *cloud) makeNodes(ctx context.Context) error {
	if err := c.join(ctx, "--capacity", "6", "--groups", "builders"); err != nil {
		return err
	}
	c.node, c.fleet = c.agent(c.b.old), c.sim(c.b.old)
	if err := errors.Join(c.node.Start(), c.fleet.Start()); err != nil {
		return err
	}
	err := until(ctx, func() error {
		var list []struct {
			ID    string `json:"node_id"`
			Name  string `json:"node_name"`
			State string `json:"state"`
		}
		if err := c.call(ctx, request{"GET", "http://" + c.controller + "/api/v1/node", nil, nil}, &list); err != nil {
			return err
		}
		for _, n := range list {
			if n.State == "Active" {
				c.nodes[n.Name] = n.ID
			}
		}
		if len(c.nodes) != 3 {
			return fmt.Errorf("the nodes are %+v; the agent said: %s", list, c.node.Tail())
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = c.yard(ctx, c.b.old, "node", "config", agentName, "--capacity", "7")
	return err
}

// agent prepares the agent of the node. Both programs have the same arguments and directory.
func (c *cloud) agent(p programs) *rig.Process {
	return rig.NewProcess(c.dir, agentName+"-"+p.commit, p.path("buildnode"),
		"run", "--driver", "sim", "--data-dir", c.file(agentName), "--metrics-listen", c.nodeMetrics, "--log-level",
		"debug")
}

// sim prepares the simulated nodes.
func (c *cloud) sim(p programs) *rig.Process {
	return rig.NewProcess(c.dir, "fleet-"+p.commit, p.path("buildnode"), "sim", "--nodes", "2", "--real-pull",
		"--capacity", "6",
		"--controller", "http://"+c.controller, "--token-file", c.file("join-token"), "--data-dir", c.file("fleet"),
		"--name", "fleet", "--usb", "phone=1", "--vlan", "10")
}

// makeInstances starts instances on both kinds of nodes, terminates one, and leaves one pending.
func (c *cloud) makeInstances(ctx context.Context) error {
	var groups []struct{ ID, Name string }
	if err := c.call(ctx, request{"GET", "http://" + c.controller + "/api/v1/group", nil, nil}, &groups); err != nil {
		return err
	}
	later := ""
	for _, g := range groups {
		if g.Name == "later" {
			later = g.ID
		}
	}
	node := func(name string) string { return c.nodes[name] }
	for _, i := range []struct {
		name   string
		fields map[string]any
		header map[string]string
	}{
		{"on-agent", map[string]any{
			"node_id": node(agentName), "tag": "v2",
			"metadata": map[string]any{"build": 17, "branch": "main"}, "external_id": "job-1",
		}, nil},
		{"to-save", map[string]any{"node_id": node(agentName)}, nil},
		{"scripted", map[string]any{
			"node_id": node(agentName), "startup_script": "ZWNobyBoZWxsbwo=",
			"script_monitoring": true,
		}, nil},
		{
			"on-fleet",
			map[string]any{"tag": "v1", "external_id": "job-2", "priority": 10},
			map[string]string{"Idempotency-Key": "key-of-job-2"},
		},
		{"ended", map[string]any{}, nil},
		{"pending", map[string]any{"group_id": later, "external_id": "job-3"}, nil},
	} {
		i.fields["vmid"], i.fields["name"] = c.templates["debian"], i.name
		id, err := c.begin(ctx, i.fields, i.header)
		if err != nil {
			return fmt.Errorf("start %s: %w", i.name, err)
		}
		c.instances[i.name] = id
		if i.name == "pending" {
			continue
		}
		if _, err := c.inState(ctx, id, "Started"); err != nil {
			return fmt.Errorf("%s: %w; the agent said: %s", i.name, err, c.node.Tail())
		}
	}
	return c.terminate(ctx, c.instances["ended"])
}

// makeJobs saves an instance and distributes a template.
func (c *cloud) makeJobs(ctx context.Context) error {
	for _, line := range [][]string{
		{
			"image", "create", "to-save", "--new-template", "saved", "--tag", "v1", "--stop", "--wait", "--timeout",
			"30s",
		},
		{"template", "distribute", "alpine", "--wait", "--timeout", "30s"},
		{"backup", c.file("old.backup")},
	} {
		if _, err := c.yard(ctx, c.b.old, line...); err != nil {
			return err
		}
	}
	return nil
}
