package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// rootToken is the root token of the guarded cloud.
const rootToken = "the root token of this run"

// nodesOf is how many simulated nodes the open cloud has.
const nodesOf = 3

// stage is everything that flows use.
type stage struct {
	open, guarded *rig.Cloud
	api           *client.Controller // of the open cloud
	template      string             // id of the template "guest" with the tag v1 in the open cloud
	browser       context.Context    // it is the browser
	fleet         *rig.Process
	ends          []func() error
}

// newStage builds the programs and starts two clouds: one that is open and has nodes, and one
// where callers have to log in.
func newStage(ctx context.Context, dir string, out io.Writer) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	fmt.Fprintln(out, "building the programs and starting two clouds")
	programs, err := rig.Build(ctx, dir)
	if err != nil {
		return s, err
	}
	if s.open, err = s.cloud(ctx, programs, filepath.Join(dir, "open"), nil); err != nil {
		return s, err
	}
	if s.guarded, err = s.cloud(ctx, programs, filepath.Join(dir, "guarded"), map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_API_KEYS": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true",
		"SVC_ENABLE_REGISTRY_AUTHORIZATION": "true", "SVC_ROOT_TOKEN": rootToken,
	}); err != nil {
		return s, err
	}
	if s.api, err = client.NewController(s.open.Controller, client.Options{}); err != nil {
		return s, err
	}
	if err := s.furnish(ctx, programs); err != nil {
		return s, err
	}
	started, end, err := browser(ctx, dir)
	if err != nil {
		return s, err
	}
	s.browser = started
	s.ends = append(s.ends, func() error { end(); return nil })
	return s, nil
}

// cloud starts a cloud below a directory.
func (s *stage) cloud(ctx context.Context, programs rig.Programs, dir string, settings map[string]string) (*rig.Cloud, error) {
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	c, err := rig.NewCloud(ctx, programs, dir)
	if err != nil {
		return nil, err
	}
	local, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{"SVC_LOCAL_LISTEN_ADDR": local, "SVC_ENABLE_EVENT_LOGGING": "true", "SVC_ENABLE_CENTRAL_LOGGING": "true"}
	for name, value := range settings {
		all[name] = value
	}
	c.Set(all)
	s.ends = append(s.ends, c.End)
	return c, c.Boot(ctx)
}

// furnish gives the open cloud a template and nodes.
func (s *stage) furnish(ctx context.Context, programs rig.Programs) (err error) {
	disk := filepath.Join(s.open.Dir, "disk.img")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	if s.template, err = s.open.PushGuest(ctx, disk); err != nil {
		return err
	}
	token, err := s.open.Token(ctx)
	if err != nil {
		return err
	}
	s.fleet = rig.NewProcess(s.open.Dir, "fleet", programs.Path("buildnode"), "sim", "--nodes", fmt.Sprint(nodesOf), "--name", "work",
		"--capacity", "20", "--boot", "300ms", "--controller", s.open.Controller, "--token", strings.TrimSpace(token))
	s.ends = append(s.ends, s.fleet.End)
	if err := s.fleet.Start(); err != nil {
		return err
	}
	return s.await(ctx, "nodes", func() (bool, error) {
		list, err := s.api.Nodes(ctx, client.ListOptions{Filter: "state:active"})
		return len(list) == nodesOf, err
	})
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
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	s.ends = nil
	return err
}
