// Package cloudtest runs a build cloud in the process of a test: controller and registry like the
// program, a fleet of simulated nodes, and pushed templates.
//
// Only the hypervisors are simulated.
//
// Invariant: everything that a function starts ends with the function that it returns.
package cloudtest

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Cloud is a cloud.
type Cloud struct {
	*buildyard.ControllerService
}

// Open runs controller and registry on free loopback ports until end is called. dir is for their data;
// settings are additional settings.
func Open(dir string, settings map[string]string) (c *Cloud, end func(), err error) {
	all := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0",
		"SVC_LOCAL_LISTEN_ADDR": "127.0.0.1:0", "SVC_INSTANCE_TIME_OUT": "1s",
		"SVC_DISK_ALARM": "0B", // the disk of the tests may be nearly full
		"SVC_DATA_DIR":   filepath.Join(dir, "controller"), "SVC_REGISTRY_BASE_PATH": filepath.Join(dir, "registry"),
		"SVC_ENABLE_EVENT_LOGGING": "true", "SVC_ENABLE_CENTRAL_LOGGING": "true",
	}
	maps.Copy(all, settings)
	s := &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err = s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := all[key]
		return v, ok
	}})
	if err == nil {
		err = s.Open(context.Background())
	}
	if err != nil {
		return nil, nil, err
	}
	stop := Background(s.Run)
	return &Cloud{s}, func() {
		stop()
		_ = s.Close()
	}, nil
}

// Background runs a function with a context that end cancels.
func Background(run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// Join runs simulated nodes in the cloud until end is called.
func (c *Cloud) Join(o fleet.Options) (end func()) {
	o.ControllerURL, o.JoinToken, o.Logger, o.Version = c.URL(), c.JoinToken(), slog.New(slog.DiscardHandler),
		cmp.Or(o.Version, "test")
	return Background(func(ctx context.Context) error { return fleet.Run(ctx, o) })
}

// Push pushes the versions v1 and v2 of a template into the registry; dir is for their disk.
// authorize adds credentials to requests to the registry; nil: there are none.
func (c *Cloud) Push(ctx context.Context, dir, id, name string, authorize func(*http.Request) error) error {
	store, err := transfer.New(transfer.Options{BaseURL: c.RegistryURL(), Authorize: authorize})
	if err != nil {
		return err
	}
	defer store.Close()
	settings, err := json.Marshal(api.TemplateConfig{
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives:   []api.ConfigDrive{{Controller: "virtio-blk", File: "disk.img", Format: "raw"}},
		NetworkCards: []api.ConfigNIC{{Mode: "shared"}},
	})
	disk := filepath.Join(dir, "disk")
	for _, tag := range []string{"v1", "v2"} {
		if err == nil {
			err = os.WriteFile(disk, []byte(tag), 0o600)
		}
		if err == nil {
			_, err = store.Push(ctx, transfer.PushOptions{
				Request: api.PushRequest{ID: id, Name: name, Tag: tag, Arch: "amd64", Config: settings},
				Files:   []transfer.PushFile{{Name: "disk.img", Path: disk, Kind: api.FileDisk, Format: "raw"}},
			})
		}
	}
	return err
}
