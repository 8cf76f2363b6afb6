package buildyard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/obs"
)

// startNode joins this machine to the demo's cloud and runs its agent until stopAll. name is that of the node; "": that
// of this machine.
func (d *demo) startNode(ctx context.Context, name string, lazy cache.LazyMode) error {
	opening := context.WithoutCancel(ctx)
	log, err := obs.Logger(&d.nodeLog, "info", "node")
	if err != nil {
		return err
	}
	dir, err := datadir.At(filepath.Join(d.DataDir, "node"+name))
	if err != nil {
		return err
	}
	_, err = buildnode.Join(opening, buildnode.JoinOptions{
		DataDir: dir, ControllerURL: d.service.URL(), Token: d.service.JoinToken(), Host: "127.0.0.1", Name: name,
		DiskReserve: "64MB",
	})
	if err != nil {
		return err
	}
	node, err := buildnode.OpenNode(opening, buildnode.NodeOptions{
		DataDir: dir, Driver: d.Driver, LazyPull: lazy, Logger: log,
	})
	if err != nil {
		return err
	}
	d.nodes = append(d.nodes, node)
	d.stopNodes = append(d.stopNodes, startBackground(ctx, node.Run))
	return nil
}

// nodeLog receives the node's log. It prints warnings, and reads the pause of the guest from the log
// line of a save.
type nodeLog struct {
	w io.Writer

	mu            sync.Mutex     // guards the field below
	lastSavePause *time.Duration // of the last save; nil when unknown
}

// Write handles one line.
func (l *nodeLog) Write(line []byte) (int, error) {
	var said struct {
		Level   slog.Level     `json:"level"`
		Message string         `json:"msg"`
		Pause   *time.Duration `json:"pause"`
	}
	if err := json.Unmarshal(line, &said); err != nil || said.Level > slog.LevelInfo {
		return l.w.Write(line)
	}
	if said.Message == "VM saved" {
		l.mu.Lock()
		l.lastSavePause = said.Pause
		l.mu.Unlock()
	}
	return len(line), nil
}

// savePause describes the pause of the guest during the last save, if known.
func (l *nodeLog) savePause() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastSavePause == nil {
		return ""
	}
	return fmt.Sprintf("; guest paused for %s", l.lastSavePause.Round(100*time.Microsecond))
}

// findHypervisorPID returns the hypervisor process of the one VM that runs.
func (d *demo) findHypervisorPID(ctx context.Context) (int, error) {
	vms, err := d.listVMs(ctx)
	if err != nil || len(vms) == 0 {
		return 0, err
	}
	return vms[0].PID, nil
}

// listVMs returns the VMs of all nodes.
func (d *demo) listVMs(ctx context.Context) (list []hv.VM, err error) {
	for _, node := range d.nodes {
		vms, err := node.Driver.List(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, vms...)
	}
	return list, nil
}

// demoTemplate describes the guest as a template.
func demoTemplate(id string) api.PushRequest {
	config, _ := json.Marshal(api.TemplateConfig{ // plain fields always marshal
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives: []api.ConfigDrive{{Controller: "virtio-blk", File: demoDisk, Format: "raw"}},
		NetworkCards: []api.ConfigNIC{
			{Mode: "shared", PortRules: []api.ConfigPort{{RuleName: "ssh", Protocol: "tcp", GuestPort: 22}}},
		},
	})
	return api.PushRequest{
		ID: id, Name: "demo", Tag: "v1", Description: "the demo guest", Arch: "amd64", Config: config,
	}
}
