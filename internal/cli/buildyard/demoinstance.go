package buildyard

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// demoRun is an instance that was started.
type demoRun struct {
	api.Instance
	ready time.Duration // from the start of its VM until it was seen to be Started
}

// startInstance starts an instance with a script and shows what the script said.
func (d *demo) startInstance(ctx context.Context) (err error) {
	script := "echo \"nonce " + d.nonce + " from $(uname -sr)\"\n"
	if d.Driver == "sim" {
		script = "echo nonce " + d.nonce + "\n"
	}
	if d.source, err = d.begin(ctx, "v1", script); err != nil {
		return err
	}
	if d.Driver == "sim" {
		d.ok("instance", "%s is Started (simulated: there is no QEMU process)", d.source.InstanceID)
	} else {
		d.ok("instance", "%s is Started: QEMU pid %d, accelerator %s", d.source.InstanceID, d.pid, d.node.Host.Accelerator)
	}
	said, err := d.scripted(ctx, d.source.InstanceID)
	if err != nil {
		return err
	}
	if !strings.Contains(said, d.nonce) {
		return fmt.Errorf("the script said %q, without the nonce of this run", said)
	}
	d.ok("script", "%s", said)
	return d.reach(ctx, d.source.Instance)
}

// begin starts an instance of a version with a monitored script, and waits until it is
// Started.
func (d *demo) begin(ctx context.Context, tag, script string) (run demoRun, err error) {
	var ids []string
	err = d.api.send(ctx, http.MethodPost, "/api/v1/vm", map[string]any{
		"vmid": d.template, "tag": tag, "name": "demo", "script_monitoring": true,
		"startup_script": base64.StdEncoding.EncodeToString([]byte(script)),
	}, &ids)
	if err != nil {
		return run, err
	}
	if run.Instance, err = d.started(ctx, ids[0]); err != nil {
		return run, err
	}
	run.InstanceID = ids[0]
	if run.VMInfo == nil {
		return run, errors.New("the instance is Started and nothing is known of its VM")
	}
	run.ready = time.Since(run.VMInfo.StartDate)
	d.pid, err = d.pidOf(ctx)
	return run, err
}

func (d *demo) started(ctx context.Context, id string) (inst api.Instance, err error) {
	err = d.await(ctx, 3*time.Minute, "the instance to start", func() (bool, error) {
		inst = api.Instance{}
		if err := d.api.get(ctx, "/api/v1/vm?id="+url.QueryEscape(id), &inst); err != nil {
			return false, err
		}
		if inst.InstanceState == "Error" {
			return false, fmt.Errorf("the instance failed: %s", inst.Message)
		}
		return inst.InstanceState == "Started", nil
	})
	return inst, err
}

// scripted waits for the script's end and gives what it said.
func (d *demo) scripted(ctx context.Context, id string) (said string, err error) {
	var inst api.Instance
	err = d.await(ctx, 2*time.Minute, "the script to end", func() (bool, error) {
		inst = api.Instance{}
		err := d.api.get(ctx, "/api/v1/vm?id="+url.QueryEscape(id), &inst)
		if err == nil && inst.InstanceState == "Error" {
			err = fmt.Errorf("the script failed: %s", inst.Message)
		}
		return inst.StartupScript != nil, err
	})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(inst.StartupScript.Stdout), nil
}
