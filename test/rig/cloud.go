package rig

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// Cloud is the controller and the registry in one process.
type Cloud struct {
	*Process
	Controller, Registry string // addresses
	Dir                  string // of everything that its programs write
	programs             Programs
	dataDir              string
}

// ReadyTime bounds the start of a program.
const ReadyTime = time.Minute

// NewCloud prepares a cloud below dir; finished records leave it quickly.
func NewCloud(ctx context.Context, p Programs, dir string) (*Cloud, error) {
	controller, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	registry, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		Controller: "http://" + controller, Registry: "http://" + registry,
		Dir: dir, programs: p, dataDir: filepath.Join(dir, "controller"),
	}
	c.Process = NewProcess(dir, "cloud", p.Path("buildyard"), "up",
		"--listen-addr", controller, "--registry-listen-address", registry,
		"--data-dir", c.dataDir, "--registry-base-path", filepath.Join(dir, "registry"),
		"--registry", c.Registry, "--instance-time-out", "1s")
	return c, nil
}

// Await waits until the controller is ready, and fails at once when it has ended.
func (c *Cloud) Await(ctx context.Context) error {
	probe := http.Client{Timeout: time.Second}
	deadline := time.Now().Add(ReadyTime)
	for time.Now().Before(deadline) {
		if !c.Running() {
			return fmt.Errorf("the controller ended by itself; it said: %s", c.Tail())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Controller+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := probe.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !Pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the controller was not ready within %s; it said: %s", ReadyTime, c.Tail())
}

// Token gives the secret that nodes join with.
func (c *Cloud) Token(ctx context.Context) (string, error) {
	return Output(ctx, "", c.bin, "node", "token", "--data-dir", c.dataDir)
}
