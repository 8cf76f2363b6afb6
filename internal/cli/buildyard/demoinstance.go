package buildyard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// demoRun is an instance that was started.
type demoRun struct {
	api.Instance
	startDuration time.Duration // from the start of its VM until it was seen to be Started
}

// startInstance starts an instance with a script and shows the script's output.
func (d *demo) startInstance(ctx context.Context) (err error) {
	script := "echo \"nonce " + d.nonce + " from $(uname -sr)\"\n"
	if d.Driver == "sim" {
		script = "echo nonce " + d.nonce + "\n"
	}
	if d.savedRun, err = d.startAndWait(ctx, "v1", script); err != nil {
		return err
	}
	if d.Driver == "sim" {
		d.printStep("instance", "%s is Started (simulated, without a QEMU process)", d.savedRun.InstanceID)
	} else {
		d.printStep("instance", "%s is Started: QEMU pid %d, accelerator %s", d.savedRun.InstanceID, d.hypervisorPID,
			d.nodes[0].Host.Accelerator)
	}
	said, err := d.awaitScript(ctx, d.savedRun.InstanceID)
	if err != nil {
		return err
	}
	if !strings.Contains(said, d.nonce) {
		return fmt.Errorf("script output %q lacks the nonce of this run", said)
	}
	d.printStep("script", "%s", said)
	return d.showLogin(ctx, d.savedRun.Instance)
}

// startAndWait starts an instance of a version with a monitored script, and waits until it is
// Started.
func (d *demo) startAndWait(ctx context.Context, tag, script string) (run demoRun, err error) {
	ids, err := d.controllerClient.Start(ctx, client.StartRequest{
		TemplateID: d.templateID, Tag: tag, Name: "demo", ScriptMonitoring: true, StartupScript: []byte(script),
	})
	if err != nil {
		return run, err
	}
	if run.Instance, err = d.awaitStarted(ctx, ids[0]); err != nil {
		return run, err
	}
	run.InstanceID = ids[0]
	if run.VMInfo == nil {
		return run, errors.New("the instance is Started without VM information")
	}
	run.startDuration = time.Since(run.VMInfo.StartDate)
	d.hypervisorPID, err = d.findHypervisorPID(ctx)
	return run, err
}

func (d *demo) awaitStarted(ctx context.Context, id string) (api.Instance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("waited 3m0s for the instance to start"))
	defer cancel()
	return d.controllerClient.WaitStarted(ctx, id, nil)
}

// awaitScript waits for the script's end and returns its output.
func (d *demo) awaitScript(ctx context.Context, id string) (said string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("waited 2m0s for the script to end"))
	defer cancel()
	result, err := d.controllerClient.WaitScript(ctx, id)
	if err != nil {
		return "", err
	}
	if result.ReturnCode != 0 {
		return "", fmt.Errorf("script failed with exit code %d: %s", result.ReturnCode, result.Stderr)
	}
	return strings.TrimSpace(result.Stdout), nil
}
