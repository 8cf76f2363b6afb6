package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// cloud is the controller and the registry in one process.
type cloud struct {
	*process
	controller, registry string // addresses
	dataDir              string
}

// readyTime bounds the start of a program.
const readyTime = time.Minute

// newCloud prepares a cloud below dir; finished records leave it quickly.
func newCloud(ctx context.Context, dir, bins string) (*cloud, error) {
	controller, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	registry, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	c := &cloud{controller: "http://" + controller, registry: "http://" + registry, dataDir: filepath.Join(dir, "controller")}
	c.process = newProcess(dir, "cloud", filepath.Join(bins, "buildyard"), "up",
		"--listen-addr", controller, "--registry-listen-address", registry,
		"--data-dir", c.dataDir, "--registry-base-path", filepath.Join(dir, "registry"),
		"--registry", c.registry, "--instance-time-out", "1s")
	return c, nil
}

// await waits until the controller is ready, and fails at once when it has ended.
func (c *cloud) await(ctx context.Context) error {
	probe := http.Client{Timeout: time.Second}
	deadline := time.Now().Add(readyTime)
	for time.Now().Before(deadline) {
		if !c.running() {
			return fmt.Errorf("the controller ended by itself; it said: %s", c.tail())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.controller+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := probe.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the controller was not ready within %s; it said: %s", readyTime, c.tail())
}

// token gives the secret that nodes join with.
func (c *cloud) token(ctx context.Context) (string, error) {
	return output(ctx, "", c.bin, "node", "token", "--data-dir", c.dataDir)
}
