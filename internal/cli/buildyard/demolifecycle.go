package buildyard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/farm"
)

// runSteps runs the services around the steps. At the end it stops the instances first, then the nodes, then the
// services.
func (d *demo) runSteps(ctx context.Context) (err error) {
	if err := d.openServices(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.service.Close()) }()
	stopServices := startBackground(ctx, d.service.Run)
	defer func() { err = errors.Join(err, stopServices()) }()
	if d.controllerClient, err = client.NewController(d.service.URL(), client.Options{}); err != nil {
		return err
	}
	d.printStep("services", "controller and portal %s, registry %s", d.service.URL(), d.service.RegistryURL())
	defer func() { err = errors.Join(err, d.stopAll(ctx)) }()
	steps := []func(context.Context) error{
		d.joinNode, d.pushGuest, d.scanTemplate, d.startInstance, d.saveInstance, d.resumeInstance,
		d.terminateInstance, d.startBeforePull,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if d.ExitWhenDone {
		return nil
	}
	d.printNextSteps()
	<-ctx.Done()
	return nil
}

// startBackground runs a part that outlives the context's end, until stop is called. Stop waits for the
// part's end and returns its error.
func startBackground(ctx context.Context, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() error {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}

// demoStopTimeout bounds how long the instances may take to end.
const demoStopTimeout = time.Minute

// stopAll ends every instance, the user's too, and the nodes. It has a separate time limit, since the
// context of the demo has ended when the user interrupted it. A VM that does not end gracefully is
// removed by the driver once its node has stopped.
func (d *demo) stopAll(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	orderly, cancel := context.WithTimeout(ctx, demoStopTimeout)
	defer cancel()
	if err := d.terminateInstances(orderly); err != nil {
		_, _ = fmt.Fprintf(d.Err, "the instances did not end (%v); removing their VMs\n", err)
	}
	sweep, cancel := context.WithTimeout(ctx, demoStopTimeout)
	defer cancel()
	for i, node := range d.nodes {
		err = errors.Join(err, d.stopNodes[i](), removeVMs(sweep, node), node.Close())
	}
	return err
}

// terminateInstances terminates every instance and waits until no VM is left. It lists the instances
// again each time, since a start may have been in progress.
func (d *demo) terminateInstances(ctx context.Context) error {
	asked := map[string]bool{}
	return d.pollUntil(ctx, demoStopTimeout, "the instances to end", func() (bool, error) {
		living, err := d.activeInstances(ctx)
		if err != nil {
			return false, err
		}
		if len(asked) == 0 && len(living) > 0 {
			_, _ = fmt.Fprintf(d.Out, "terminating %s\n", instanceCount(len(living)))
		}
		for _, id := range living {
			if asked[id] {
				continue
			}
			asked[id] = true
			if err := d.controllerClient.Terminate(ctx, id); err != nil && !errors.Is(err, client.ErrNotFound) {
				return false, err
			}
		}
		left, err := d.listVMs(ctx)
		return len(living) == 0 && len(left) == 0, err
	})
}

// activeInstances returns the ids of the instances that have not ended.
func (d *demo) activeInstances(ctx context.Context) (ids []string, err error) {
	list, err := d.controllerClient.Instances(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, item := range list {
		if item.VM.InstanceState != string(farm.Terminated) {
			ids = append(ids, item.InstanceID)
		}
	}
	return ids, nil
}

func instanceCount(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// removeVMs removes the remaining VMs of a node whose agent has stopped.
func removeVMs(ctx context.Context, node *buildnode.Node) error {
	vms, err := node.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("list remaining VMs: %w", err)
	}
	var errs []error
	for _, vm := range vms {
		if err := node.Driver.Delete(ctx, vm.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove VM %s: %w", vm.ID, err))
		}
	}
	return errors.Join(errs...)
}

// printNextSteps prints the next steps.
func (d *demo) printNextSteps() {
	_, _ = fmt.Fprintf(d.Out, `
The cloud keeps running: controller %[1]s, registry %[2]s. Try:

  curl -s %[1]s/api/v1/node
  curl -s %[1]s/api/v1/vm -d '{"vmid": "%[3]s", "name": "mine"}'
  curl -s %[1]s/api/v1/vm
`, d.service.URL(), d.service.RegistryURL(), d.templateID)
	if d.Driver != "sim" {
		_, _ = fmt.Fprintf(d.Out, `
When your VM is Started, the last response has the host_port of its guest_port 22:

  ssh -p <host_port> %s@127.0.0.1     (password %s)
`, d.GuestUser, d.GuestPassword)
	}
	_, _ = fmt.Fprint(d.Out,
		"\nThe demo listens on loopback only, without authentication. \"buildyard init && buildyard up\" runs a cloud "+
			"with authentication.\n")
	_, _ = fmt.Fprint(d.Out, "\nCtrl-C stops the VMs and the cloud. Files are kept only with --data-dir.\n")
}
