package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/e2e/chromium"
	"github.com/buildyard/buildyard/test/e2e/firefox"
	"github.com/buildyard/buildyard/test/rig"
)

// rootToken is the root token of the guarded cloud.
const rootToken = "the root token of this run"

// nodesOf is how many simulated nodes the open cloud has.
const nodesOf = 3

// stage is everything that flows use.
type stage struct {
	open, guarded *rig.Cloud
	lab           *faultCloud
	api, root     *client.Controller          // of the open cloud, and of the guarded one as the root user
	template      string                      // id of the template "guest" with the tag v1 in the open cloud
	browser       context.Context             // it is Chromium
	firefox       map[string]*firefox.Browser // by color scheme
	programs      rig.Programs
	services      *externalServices
	dir           string        // of everything
	outage, large *specialCloud // nil: no flow needs them
	fleets        int           // that were started
	ends          []func() error
}

// newStage builds the programs and starts three clouds: one that is open and has nodes, one where
// callers have to log in and that has none, and one for what is odd and for what breaks.
func newStage(ctx context.Context, dir string, list []flow, out io.Writer) (s *stage, err error) {
	s = &stage{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	fmt.Fprintln(out, "building the programs and starting three clouds")
	if s.programs, err = rig.Build(ctx, dir); err != nil {
		return s, err
	}
	if s.services, err = newExternalServices(ctx); err != nil {
		return s, err
	}
	s.ends = append(s.ends, func() error { s.services.close(); return nil })
	if err := s.begin(ctx, dir); err != nil {
		return s, err
	}
	if err := s.prepare(ctx, list); err != nil {
		return s, err
	}
	started, end, err := chromium.Start(ctx, dir)
	if err != nil {
		return s, err
	}
	s.browser = started
	s.ends = append(s.ends, func() error { end(); return nil })
	s.firefox = map[string]*firefox.Browser{}
	for _, theme := range []string{"light", "dark"} {
		b, err := firefox.Start(ctx, dir, theme)
		if err != nil {
			return s, err
		}
		s.firefox[theme] = b
		s.ends = append(s.ends, func() error { b.End(); return nil })
	}
	return s, nil
}

// begin starts the clouds and puts into them what flows find there.
func (s *stage) begin(ctx context.Context, dir string) (err error) {
	if s.open, err = s.cloud(ctx, filepath.Join(dir, "open"), nil); err != nil {
		return err
	}
	if s.guarded, err = s.cloud(ctx, filepath.Join(dir, "guarded"), s.services.settings(map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_API_KEYS": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true",
		"SVC_ENABLE_REGISTRY_AUTHORIZATION": "true", "SVC_ROOT_TOKEN": rootToken,
	})); err != nil {
		return err
	}
	if s.api, err = client.NewController(s.open.Controller, client.Options{}); err != nil {
		return err
	}
	if s.root, err = client.NewController(s.guarded.Controller,
		client.Options{Credentials: client.RootToken(rootToken)}); err != nil {
		return err
	}
	if err := s.services.knows(s.guarded.Controller); err != nil {
		return err
	}
	if err := s.furnish(ctx); err != nil {
		return err
	}
	s.lab, err = s.newLab(ctx, filepath.Join(dir, "lab"))
	return err
}

// cloud starts a cloud below a directory.
func (s *stage) cloud(ctx context.Context, dir string, settings map[string]string) (*rig.Cloud, error) {
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	c, err := rig.NewCloud(ctx, s.programs, dir)
	if err != nil {
		return nil, err
	}
	local, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"SVC_LOCAL_LISTEN_ADDR": local, "SVC_ENABLE_EVENT_LOGGING": "true",
		"SVC_ENABLE_CENTRAL_LOGGING": "true",
	}
	maps.Copy(all, settings)
	c.Set(all)
	s.ends = append(s.ends, c.End)
	return c, c.Boot(ctx)
}

// furnish returns the open cloud a template and nodes.
func (s *stage) furnish(ctx context.Context) (err error) {
	disk := filepath.Join(s.open.Dir, "disk.img")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	if s.template, err = s.open.PushGuest(ctx, disk); err != nil {
		return err
	}
	if err := s.fleet(ctx, s.open, "work", "--nodes", fmt.Sprint(nodesOf), "--capacity", "40", "--boot", "300ms",
		"--usb", "phone=1"); err != nil {
		return err
	}
	return s.await(ctx, "nodes", func() (bool, error) {
		list, err := s.api.Nodes(ctx, client.ListOptions{Filter: "state:active"})
		return len(list) == nodesOf, err
	})
}

// fleet starts simulated nodes of a cloud.
func (s *stage) fleet(ctx context.Context, c *rig.Cloud, name string, args ...string) error {
	token, err := c.Token(ctx)
	if err != nil {
		return err
	}
	s.fleets++
	p := rig.NewProcess(c.Dir, fmt.Sprint("fleet-", s.fleets), s.programs.Path("buildnode"),
		append([]string{"sim", "--name", name, "--controller", c.Controller, "--token", strings.TrimSpace(token)},
			args...)...)
	s.ends = append(s.ends, p.End)
	return p.Start()
}

// await waits for something of the cloud.
func (s *stage) await(ctx context.Context, what string, is func() (bool, error)) error {
	for end := time.Now().Add(rig.ReadyTime); ; {
		ok, err := is()
		if ok && err == nil {
			return nil
		}
		if time.Now().After(end) || !rig.Pause(ctx, 50*time.Millisecond) {
			return errors.Join(fmt.Errorf("waited for %s", what), err)
		}
	}
}

// start starts instances and waits until they run.
func (s *stage) start(ctx context.Context, name string, n int) (ids []string, err error) {
	ids, err = s.api.Start(ctx, client.StartRequest{TemplateID: s.template, Name: name, Count: n})
	if err != nil {
		return nil, err
	}
	return ids, s.await(ctx, "instances", func() (bool, error) {
		list, err := s.api.Instances(ctx, client.ListOptions{Filter: "state:started name:" + name})
		return len(list) == n, err
	})
}

// close ends everything, the last first.
func (s *stage) close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	s.ends = nil
	return err
}
