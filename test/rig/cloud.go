package rig

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/rest/porttest"
)

// Cloud is the controller and the registry, in one process or in two.
type Cloud struct {
	*Process                      // the controller
	Store                *Process // the registry; nil when it is in the controller's process
	Controller, Registry string   // addresses
	Front                string   // address by which the controller and nodes know the registry; "": Registry
	Dir                  string   // of everything that its programs write
	Base                 string   // the registry's storage
	programs             Programs
	dataDir              string

	// RegistryOptions are options of every push, such as those of a credential.
	RegistryOptions []string
}

// ReadyTime bounds the start of a program.
const ReadyTime = time.Minute

// NewCloud prepares a cloud below dir whose controller and registry are one process;
// finished records leave it quickly.
func NewCloud(ctx context.Context, p Programs, dir string) (*Cloud, error) {
	return NewCloudAt(ctx, p, dir, loopback)
}

// NewCloudAt is NewCloud, except that it listens at an address of this host which other machines of the test reach.
func NewCloudAt(ctx context.Context, p Programs, dir, at string) (*Cloud, error) {
	c, err := prepare(ctx, p, dir, at)
	if err != nil {
		return nil, err
	}
	args := append([]string{"up", "--registry-listen-address", host(c.Registry), "--registry-base-path", c.Base},
		c.settings()...)
	c.Process = NewProcess(dir, "cloud", p.Path("buildyard"), args...)
	return c, nil
}

// NewSplitCloud prepares a cloud whose registry is a separate process.
func NewSplitCloud(ctx context.Context, p Programs, dir string) (*Cloud, error) {
	c, err := prepare(ctx, p, dir, loopback)
	if err != nil {
		return nil, err
	}
	return c.split(p), nil
}

// NewFrontedCloud is NewSplitCloud, except that controller and nodes know the registry by the address Front. The caller
// listens there.
func NewFrontedCloud(ctx context.Context, p Programs, dir string) (*Cloud, error) {
	c, err := prepare(ctx, p, dir, loopback)
	if err != nil {
		return nil, err
	}
	front, err := FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	c.Front = "http://" + front
	return c.split(p), nil
}

func (c *Cloud) split(p Programs) *Cloud {
	dir := c.Dir
	c.Process = NewProcess(dir, "controller", p.Path("buildyard"), append([]string{"controller"}, c.settings()...)...)
	c.Store = NewProcess(dir, "registry", p.Path("buildyard"), "registry", "--listen-addr", host(c.Registry),
		"--base-path", c.Base)
	return c
}

// prepare chooses addresses and directories.
func prepare(ctx context.Context, p Programs, dir, at string) (*Cloud, error) {
	controller, err := porttest.FreeAddr(ctx, at)
	if err != nil {
		return nil, err
	}
	registry, err := porttest.FreeAddr(ctx, at)
	if err != nil {
		return nil, err
	}
	return &Cloud{
		Controller: "http://" + controller, Registry: "http://" + registry,
		Dir: dir, Base: filepath.Join(dir, "registry"), programs: p, dataDir: filepath.Join(dir, "controller"),
	}, nil
}

// settings are the arguments of every controller.
func (c *Cloud) settings() []string {
	return []string{
		"--listen-addr", host(c.Controller), "--data-dir", c.dataDir, "--registry", cmp.Or(c.Front, c.Registry),
		"--instance-time-out", "1s",
	}
}

// host is an address without its scheme.
func host(address string) string { return strings.TrimPrefix(address, "http://") }

// Boot starts everything and waits until it is ready.
func (c *Cloud) Boot(ctx context.Context) error {
	for _, p := range c.Processes() {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return c.Await(ctx)
}

// Processes returns the programs of the cloud.
func (c *Cloud) Processes() []*Process {
	if c.Store == nil {
		return []*Process{c.Process}
	}
	return []*Process{c.Process, c.Store}
}

// Await waits until controller and registry are ready, and fails immediately when one of them has
// ended.
func (c *Cloud) Await(ctx context.Context) error {
	if err := Ready(ctx, c.Process, c.Controller); err != nil || c.Store == nil {
		return err
	}
	return Ready(ctx, c.Store, c.Registry)
}

// Ready waits until a program reports at its address that it is ready.
func Ready(ctx context.Context, p *Process, address string) error {
	return ReadyBy(ctx, p, address, nil)
}

// ReadyBy is Ready over connections of the caller's; nil: plain ones.
func ReadyBy(ctx context.Context, p *Process, address string, by http.RoundTripper) error {
	probe := http.Client{Timeout: time.Second, Transport: by}
	deadline := time.Now().Add(ReadyTime)
	for time.Now().Before(deadline) {
		if !p.Running() {
			return fmt.Errorf("%s ended by itself; it said: %s", p.Name, p.Tail())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
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
	return fmt.Errorf("%s was not ready within %s; it said: %s", p.Name, ReadyTime, p.Tail())
}

// Token returns the secret that nodes join with.
func (c *Cloud) Token(ctx context.Context) (string, error) {
	return Output(ctx, "", c.programs.Path("buildyard"), "node", "token", "--data-dir", c.dataDir)
}
