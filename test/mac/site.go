package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// site is a cloud with fake Macs and a template of macOS.
type site struct {
	*stage
	dir      string
	cloud    *rig.Cloud
	api      *client.Controller
	registry *registryProxy // that nodes reach the registry through
	template string
	macs     []*mac
	linux    map[string]*rig.Process // simulated Linux nodes by their architecture

	traffic sync.RWMutex // held for writing by a case that stops the proxy
}

// templateName is the name of the template of macOS.
const templateName = "sonoma"

// open starts the services and the Macs, and pushes the template.
func (x *site) open(ctx context.Context, macs int, managedMACs bool) (err error) {
	if err := rig.MakeDir(x.dir); err != nil {
		return err
	}
	if x.cloud, err = rig.NewSplitCloud(ctx, x.Programs, x.dir); err != nil {
		return err
	}
	if x.registry, err = openRegistryProxy(ctx, x.cloud.Registry); err != nil {
		return err
	}
	x.cloud.With("--registry", x.registry.address(), "--start-timeout", startTimeout.String())
	if managedMACs {
		x.cloud.With("--manage-mac-addresses", "--mac-addr-range", firstMAC+"-"+lastMAC)
	}
	if x.api, err = client.NewController(x.cloud.Controller, client.Options{}); err != nil {
		return err
	}
	if err := x.cloud.Boot(ctx); err != nil {
		return err
	}
	for i := range macs {
		m, err := x.addMac(ctx, fmt.Sprintf("mac%d", i+1))
		if err != nil {
			return err
		}
		x.macs = append(x.macs, m)
	}
	for _, m := range x.macs {
		if err := m.awaitActive(ctx); err != nil {
			return err
		}
	}
	x.template, err = x.cloud.Push(ctx, templateName, x.importArgs(templateName)...)
	return err
}

// The addresses of a cloud that manages MAC addresses.
const (
	firstMAC = "52:54:00:00:00:01"
	lastMAC  = "52:54:00:00:0f:ff"
)

// startTimeout is how long a node may take to start a VM here.
const startTimeout = 20 * time.Second

// close ends everything that was started.
func (x *site) close() (err error) {
	for _, m := range x.macs {
		err = errors.Join(err, m.close())
	}
	for _, p := range x.linux {
		err = errors.Join(err, p.End())
	}
	if x.cloud != nil && x.cloud.Process != nil {
		for _, p := range x.cloud.Processes() {
			err = errors.Join(err, p.End())
		}
	}
	if x.registry != nil {
		err = errors.Join(err, x.registry.close())
	}
	return err
}

// waitLimit bounds a wait for a condition that a loaded machine may delay.
const waitLimit = 90 * time.Second

const waitInterval = 20 * time.Millisecond

// await waits until a condition holds. An error of the condition is reported when the wait ends without it.
func await(ctx context.Context, what string, holds func() (bool, error)) error {
	var last error
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); {
		ok, err := holds()
		if ok && err == nil {
			return nil
		}
		last = err
		if !rig.Pause(ctx, waitInterval) {
			return errors.Join(fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx)), last)
		}
	}
	return errors.Join(fmt.Errorf("waited %s for %s", waitLimit, what), last)
}
