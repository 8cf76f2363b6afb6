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
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/obs"
)

// openNode joins this machine to the demo's cloud, as its one node.
func (d *demo) openNode(ctx context.Context) (*buildnode.Node, error) {
	log, err := obs.Logger(&d.nodeLog, "info", "node")
	if err != nil {
		return nil, err
	}
	dir, err := datadir.At(filepath.Join(d.Dir, "node"))
	if err != nil {
		return nil, err
	}
	_, err = buildnode.Join(ctx, buildnode.JoinOptions{
		Home: dir, Controller: d.services.URL(), Token: d.services.JoinToken(), Host: "127.0.0.1", Reserve: "64MB",
	})
	if err != nil {
		return nil, err
	}
	return buildnode.OpenNode(ctx, buildnode.NodeOptions{Home: dir, Driver: d.Driver, Logger: log})
}

// nodeLog receives the node's log. It prints warnings, and reads the pause of the guest from the log
// line of a save.
type nodeLog struct {
	out io.Writer

	mu    sync.Mutex     // guards the field below
	pause *time.Duration // of the last save; nil when unknown
}

// Write handles one line.
func (l *nodeLog) Write(line []byte) (int, error) {
	var said struct {
		Level   slog.Level     `json:"level"`
		Message string         `json:"msg"`
		Pause   *time.Duration `json:"pause"`
	}
	if err := json.Unmarshal(line, &said); err != nil || said.Level > slog.LevelInfo {
		return l.out.Write(line)
	}
	if said.Message == "VM saved" {
		l.mu.Lock()
		l.pause = said.Pause
		l.mu.Unlock()
	}
	return len(line), nil
}

// savePause describes the pause of the guest during the last save, if known.
func (l *nodeLog) savePause() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pause == nil {
		return ""
	}
	return fmt.Sprintf("; guest paused for %s", l.pause.Round(100*time.Microsecond))
}

// pidOf returns the hypervisor process of the one VM that runs.
func (d *demo) pidOf(ctx context.Context) (int, error) {
	vms, err := d.node.Driver.List(ctx)
	if err != nil || len(vms) == 0 {
		return 0, err
	}
	return vms[0].PID, nil
}

// vms counts the VMs of the node.
func (d *demo) vms(ctx context.Context) (int, error) {
	vms, err := d.node.Driver.List(ctx)
	return len(vms), err
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
