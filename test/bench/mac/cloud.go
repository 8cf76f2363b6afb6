package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// cloud is a controller with its registry and one node that is a Mac.
type cloud struct {
	*rig.Cloud
	client rig.Client
	node   *rig.Process
	home   string            // TART_HOME of the node
	images map[string]string // image -> ID of its template
}

// Time limits and polling intervals. Polling costs part of what is measured: half a look on average.
const (
	startLimit = 2 * time.Minute
	look       = 5 * time.Millisecond
	glance     = 50 * time.Millisecond
	nodeName   = "node"
	capacity   = 2
)

// measureCloud measures what needs a cloud.
func (b *bench) measureCloud(ctx context.Context) (err error) {
	dir := filepath.Join(b.mac.dir, "cloud")
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	c := &cloud{home: filepath.Join(dir, nodeName, "tart"), images: map[string]string{}}
	if c.Cloud, err = rig.NewCloud(ctx, b.Programs, dir); err != nil {
		return err
	}
	c.client = rig.NewClient(c.Controller)
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx, b.mac); err != nil {
		return err
	}
	b.Say("started the cloud")

	part := func(do func(context.Context, *cloud) error, rows ...string) runner.Part {
		return runner.Part{Rows: rows, Do: func(ctx context.Context) error { return do(ctx, c) }}
	}
	b.MeasureParts(ctx,
		part(b.warmUp, rowStart, rowSize),
		part(b.measureStarts, rowStart),
		part(b.measureSizes, rowSize),
		part(b.measureDelta, rowDelta),
	)
	return nil
}

// open starts the cloud, pushes the images and joins the node.
func (c *cloud) open(ctx context.Context, mac *fakeMac) (err error) {
	if err := c.Boot(ctx); err != nil {
		return err
	}
	for _, name := range []string{smallImage, largeImage} {
		c.images[name], err = c.Push(ctx, name, "import", "--tart", mac.imageDir(name), "--name", name, "--cpu", "2",
			"--ram", "4G")
		if err != nil {
			return err
		}
	}
	if c.node, err = c.Join(ctx, rig.NodeOptions{Name: nodeName, Capacity: capacity, Driver: "tart"}); err != nil {
		return err
	}
	return c.await(ctx, rig.ReadyTime, glance, "the node", func() (bool, error) {
		var nodes []api.Node
		err := c.client.Send(ctx, http.MethodGet, "/api/v1/node", nil, &nodes)
		return len(nodes) == 1 && nodes[0].State == "Active", err
	})
}

// await polls until done returns true. It fails when a program has ended.
func (c *cloud) await(ctx context.Context, limit, every time.Duration, what string, done func() (bool, error)) error {
	processes := []*rig.Process{c.Process, c.node}
	return runner.Wait{What: what, Limit: limit, Every: every, Processes: processes}.Await(ctx, done)
}

// start starts an instance of an image, waits until it is Started, ends it, and returns the time from the
// request until Started. The script, which runs after that, frees the start from waiting for an address of
// this host's network.
func (c *cloud) start(ctx context.Context, image string) (took time.Duration, err error) {
	began := time.Now()
	var ids []string
	err = c.client.Send(ctx, http.MethodPost, "/api/v1/vm", map[string]any{
		"vmid": c.images[image], "startup_script": []byte(":\n"), "startup_script_condition": 1,
	}, &ids)
	if err != nil || len(ids) != 1 {
		return 0, errors.Join(err, fmt.Errorf("asked for one instance, got %d", len(ids)))
	}
	defer func() { err = errors.Join(err, c.end(ctx, ids[0])) }()
	var inst api.Instance
	err = c.await(ctx, startLimit, look, "the instance to start", func() (bool, error) {
		err := c.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(ids[0]), nil, &inst)
		if err == nil && inst.InstanceState == "Error" {
			err = fmt.Errorf("the instance failed: %s", inst.Message)
		}
		return inst.InstanceState == "Started", err
	})
	if took = time.Since(began); err != nil {
		err = fmt.Errorf("start of %s: %w; it is %s %s", image, err, inst.InstanceState, inst.Message)
	}
	return took, err
}

// end terminates an instance and waits until it is gone.
func (c *cloud) end(ctx context.Context, id string) error {
	err := c.client.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": id}, nil)
	if err != nil && !errors.Is(err, rig.Refusal("Not found")) {
		return err
	}
	return c.await(ctx, endLimit, glance, "the instance to end", func() (bool, error) {
		var inst api.Instance
		err := c.client.Send(ctx, http.MethodGet, "/api/v1/vm?id="+url.QueryEscape(id), nil, &inst)
		if errors.Is(err, rig.Refusal("Not found")) {
			return true, nil
		}
		return inst.InstanceState == "Terminated", err
	})
}

// close ends the programs. VMs outlive the node's agent, so instances are ended before.
func (c *cloud) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*endLimit)
	defer cancel()
	var errs []error
	if c.node != nil && c.node.Running() && c.Running() {
		var list []api.InstanceItem
		errs = append(errs, c.client.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &list))
		for _, item := range list {
			errs = append(errs, c.end(ctx, item.InstanceID))
		}
	}
	if c.node != nil {
		errs = append(errs, c.node.End())
	}
	return errors.Join(append(errs, c.End())...)
}
