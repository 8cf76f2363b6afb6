package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// specialCloud is a cloud for one flow: with another number of nodes, or without contact to any.
type specialCloud struct {
	*rig.Cloud
	api      *client.Controller
	template string
	fleet    *rig.Process
}

// special starts a cloud with a template and a fleet of simulated nodes.
func (s *stage) special(ctx context.Context, name string, nodes int, args ...string) (c *specialCloud, err error) {
	c = &specialCloud{}
	if c.Cloud, err = s.cloud(ctx, filepath.Join(s.dir, name), nil); err != nil {
		return c, err
	}
	if c.api, err = client.NewController(c.Controller, client.Options{}); err != nil {
		return c, err
	}
	if c.template, err = c.Push(ctx, "ci-base", "create", "--name", "ci-base", "--disk-size", "16M", "--cpu", "1",
		"--ram", "256M"); err != nil {
		return c, err
	}
	token, err := c.Token(ctx)
	if err != nil {
		return c, err
	}
	c.fleet = rig.NewProcess(c.Dir, "fleet", s.programs.Path("buildnode"),
		append([]string{
			"sim", "--name", "mac", "--nodes", strconv.Itoa(nodes), "--controller", c.Controller, "--token", token,
			"--log-level", "warn",
		}, args...)...)
	s.ends = append(s.ends, c.fleet.End)
	if err := c.fleet.Start(); err != nil {
		return c, err
	}
	return c, s.await(ctx, "the nodes of "+name, func() (bool, error) {
		stats, err := c.api.Stats(ctx)
		return stats.Nodes["Active"] == nodes, err
	})
}

// run starts instances in it and waits until all of them run.
func (c *specialCloud) run(ctx context.Context, s *stage, n int) error {
	const batch = 1000
	for begun := 0; begun < n; begun += batch {
		if _, err := c.api.Start(ctx, client.StartRequest{
			TemplateID: c.template, Tag: "v1", Count: min(batch, n-begun), ExternalID: "http://ci.example/job/42",
		}); err != nil {
			return err
		}
	}
	return s.await(ctx, "instances", func() (bool, error) {
		stats, err := c.api.Stats(ctx)
		return stats.Instances["Started"] == n, err
	})
}

// prepare starts what flows need in addition, before any of them: what takes its time then has it.
func (s *stage) prepare(ctx context.Context, list []flow) (err error) {
	for _, f := range list {
		if f.prepare == nil {
			continue
		}
		if err := f.prepare(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// toCloud opens a page of a special cloud.
func (p *page) toCloud(c *specialCloud, path string) func() error {
	return func() error {
		if c == nil {
			return errors.New("the cloud of this flow was not started")
		}
		return p.tab.Navigate(p, c.Controller+path)
	}
}
