package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// hostile is text that must never act on a page: if it were taken for HTML, the page would show it.
const hostile = `<img src=x onerror="window.ran=1"><script>window.ran=2</script>'"&<b>bold</b>`

// faultCloud is the cloud for what is odd and for what breaks: hostile names, nodes on which nothing
// starts, that pull slowly or may be deleted, and instances that wait permanently.
type faultCloud struct {
	*rig.Cloud
	api      *client.Controller
	registry *client.Registry
	template string // its name is hostile
	node     string // id of the node whose name is hostile
	broken   string // id of the node on which no VM boots
	group    string // of no node; its name is hostile
}

// waitingOf is how many instances wait in the lab for a node of a group that has none: more
// than a page shows.
const waitingOf = 120

func (s *stage) newLab(ctx context.Context, dir string) (l *faultCloud, err error) {
	l = &faultCloud{}
	if l.Cloud, err = s.cloud(ctx, dir, nil); err != nil {
		return l, err
	}
	if l.api, err = client.NewController(l.Controller, client.Options{}); err != nil {
		return l, err
	}
	if l.registry, err = client.NewRegistry(l.Registry, client.Options{}); err != nil {
		return l, err
	}
	if l.template, err = l.push(ctx, hostile, "v1"); err != nil {
		return l, err
	}
	for _, f := range []struct {
		name string
		args []string
	}{
		{hostile, []string{"--nodes", "1", "--boot", "2s"}},
		{"broken", []string{"--nodes", "1", "--boot-failure", "1"}},
		{"slow", []string{"--nodes", "2", "--pull", "5m"}},
		{"spare", []string{"--nodes", fmt.Sprint(len(looks))}},
	} {
		if err := s.fleet(ctx, l.Cloud, f.name, f.args...); err != nil {
			return l, err
		}
	}
	return l, errors.Join(s.findNodes(ctx, l), l.crowd(ctx))
}

// findNodes waits for the nodes of the lab, and learns which is which.
func (s *stage) findNodes(ctx context.Context, l *faultCloud) error {
	return s.await(ctx, "nodes of the lab", func() (bool, error) {
		list, err := l.api.Nodes(ctx, client.ListOptions{Filter: "state:active"})
		for _, n := range list {
			switch {
			case strings.HasPrefix(n.NodeName, hostile):
				l.node = n.NodeID
			case strings.HasPrefix(n.NodeName, "broken"):
				l.broken = n.NodeID
			}
		}
		return len(list) == 4+len(looks), err
	})
}

// crowd starts what waits permanently.
func (l *faultCloud) crowd(ctx context.Context) error {
	about := hostile
	g, err := l.api.CreateGroup(ctx, client.GroupRequest{Name: hostile, Description: &about})
	if err != nil {
		return err
	}
	l.group = g.ID
	_, err = l.api.Start(ctx,
		client.StartRequest{TemplateID: l.template, Name: "crowd", GroupID: g.ID, Count: waitingOf})
	return err
}

// push puts a template with some tags into the registry of the lab.
func (l *faultCloud) push(ctx context.Context, name string, tags ...string) (id string, err error) {
	store, err := transfer.New(transfer.Options{BaseURL: l.Registry})
	if err != nil {
		return "", err
	}
	defer store.Close()
	settings, err := json.Marshal(api.TemplateConfig{
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives:   []api.ConfigDrive{{Controller: "virtio-blk", File: "disk.img", Format: "raw"}},
		NetworkCards: []api.ConfigNIC{{Mode: "shared"}},
	})
	if err != nil {
		return "", err
	}
	id = uuid.NewString()
	disk := filepath.Join(l.Dir, "disk-"+id)
	for i, tag := range tags {
		if err := os.WriteFile(disk, make([]byte, (i+1)<<20), 0o600); err != nil {
			return "", err
		}
		if _, err := store.Push(ctx, transfer.PushOptions{
			Request: api.PushRequest{ID: id, Name: name, Tag: tag, Arch: "amd64", Config: settings, Description: name},
			Files:   []transfer.PushFile{{Name: "disk.img", Path: disk, Kind: api.FileDisk, Format: "raw"}},
		}); err != nil {
			return "", fmt.Errorf("pushing %s: %w", tag, err)
		}
	}
	return id, nil
}
