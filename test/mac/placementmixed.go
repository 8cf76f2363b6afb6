package main

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/client"
)

// mixedCloud: templates of macOS and of Linux for both architectures land where they can run, and wait with the reason
// when they are asked to run elsewhere.
func mixedCloud(ctx context.Context, a *caseRun) error {
	nodes, err := a.mixedNodes(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		os, arch, home string
		elsewhere      map[string]string // node -> why the template does not run there
	}{
		{"macos", "arm64", a.mac.name, map[string]string{
			linuxName("arm64"): "does not run macOS guests", linuxName("amd64"): "does not run macOS guests",
		}},
		{"linux", "arm64", linuxName("arm64"), map[string]string{
			a.mac.name: "runs macOS guests only", linuxName("amd64"): "has architecture amd64, not arm64",
		}},
		{"linux", "amd64", linuxName("amd64"), map[string]string{
			a.mac.name: "runs macOS guests only", linuxName("arm64"): "has architecture arm64, not amd64",
		}},
	} {
		template := a.template
		if c.os != "macos" {
			if template, err = a.pushLinux(ctx, c.os+"-"+c.arch, c.arch); err != nil {
				return err
			}
		}
		if err := a.landsAt(ctx, template, c.home, nodes); err != nil {
			return err
		}
		for node, why := range c.elsewhere {
			if err := a.waitsAt(ctx, template, nodes[node], why); err != nil {
				return err
			}
		}
	}
	return a.mac.clean(ctx)
}

// mixedNodes joins a Linux node of each architecture and returns the IDs of all nodes by their names.
func (a *caseRun) mixedNodes(ctx context.Context) (map[string]string, error) {
	for _, arch := range []string{"amd64", "arm64"} {
		if err := a.joinLinux(ctx, arch); err != nil {
			return nil, err
		}
	}
	list, err := a.api.Nodes(ctx, client.ListOptions{})
	ids := map[string]string{}
	for _, n := range list {
		ids[n.NodeName] = n.NodeID
	}
	return ids, err
}

// landsAt starts two instances without a wish for a node, and checks that both are on one.
func (a *caseRun) landsAt(ctx context.Context, template, home string, nodes map[string]string) error {
	ids, err := a.api.Start(ctx, client.StartRequest{TemplateID: template, Count: 2})
	if err != nil {
		return err
	}
	for _, id := range ids {
		in, err := a.awaitState(ctx, id, stateStarted)
		if err != nil {
			return err
		}
		a.check(in.NodeID == nodes[home], "an instance for %s lands on %s", in.Arch, home)
		if err := a.terminate(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// waitsAt starts an instance on a node that cannot run it, and checks the reason for which it waits.
func (a *caseRun) waitsAt(ctx context.Context, template, node, why string) error {
	ids, err := a.api.Start(ctx, client.StartRequest{TemplateID: template, NodeID: node})
	if err != nil {
		return err
	}
	return errors.Join(a.awaitReason(ctx, ids[0], why), a.terminate(ctx, ids[0]))
}
