package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// rootToken is the root token of the cloud.
const rootToken = "the root token of this run"

// stage is a full cloud.
type stage struct {
	cloud    *rig.Cloud
	fleet    *rig.Process
	api      *client.Controller
	template string
	cookies  []*http.Cookie

	mu  sync.Mutex // guards ids
	ids []string   // of the instances, the oldest first
}

// openStage starts a cloud where callers log in, and fills it. A returned stage must be closed,
// also after an error.
func openStage(ctx context.Context, b *bench) (s *stage, err error) {
	if err := b.Build(ctx); err != nil {
		return nil, err
	}
	s = &stage{}
	if s.cloud, err = rig.NewCloud(ctx, b.Programs, b.Dir); err != nil {
		return nil, err
	}
	if err := s.guard(ctx); err != nil {
		return s, err
	}
	token, err := s.cloud.Token(ctx)
	if err != nil {
		return s, err
	}
	s.fleet = rig.NewProcess(b.Dir, "fleet", b.Programs.Path("buildnode"), "sim", "--nodes", strconv.Itoa(nodes),
		"--controller", s.cloud.Controller, "--token", token, "--capacity", strconv.Itoa(slots), "--log-level", "warn")
	if err := s.fleet.Start(); err != nil {
		return s, err
	}
	if err := s.fill(ctx); err != nil {
		return s, err
	}
	b.Say("%d instances run on %d nodes", instances, nodes)
	return s, nil
}

// guard pushes a template and starts the cloud again, from where on callers have to log in.
func (s *stage) guard(ctx context.Context) (err error) {
	if err := s.cloud.Boot(ctx); err != nil {
		return err
	}
	if s.template, err = s.cloud.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu",
		"1", "--ram", "256M"); err != nil {
		return err
	}
	if err := s.cloud.End(); err != nil {
		return err
	}
	local, err := rig.FreeAddr(ctx)
	if err != nil {
		return err
	}
	s.cloud.Set(map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ENABLE_CONTROLLER_AUTHORIZATION": "true", "SVC_ROOT_TOKEN": rootToken,
		"SVC_LOCAL_LISTEN_ADDR": local,
	})
	if err := s.cloud.Boot(ctx); err != nil {
		return err
	}
	if s.api, err = client.NewController(s.cloud.Controller,
		client.Options{Credentials: client.RootToken(rootToken)}); err != nil {
		return err
	}
	return s.logIn(ctx)
}

// logIn logs in as the login page does.
func (s *stage) logIn(ctx context.Context) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	form := url.Values{"token": {rootToken}, "return": {"/"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cloud.Controller+"/login",
		strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := (&http.Client{Jar: jar, Timeout: time.Minute}).Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if s.cookies = jar.Cookies(req.URL); resp.StatusCode != http.StatusOK || len(s.cookies) == 0 {
		return fmt.Errorf("the log-in was answered with HTTP %d and %d cookies", resp.StatusCode, len(s.cookies))
	}
	return nil
}

const batch = 1000 // instances of one request

// fill waits for the nodes and starts the instances.
func (s *stage) fill(ctx context.Context) error {
	err := s.await(ctx, "the nodes", func() (bool, error) {
		stats, err := s.api.Stats(ctx)
		return stats.Nodes["Active"] == nodes && stats.Capacity == nodes*slots, err
	})
	for len(s.ids) < instances && err == nil {
		var ids []string
		ids, err = s.api.Start(ctx,
			client.StartRequest{TemplateID: s.template, Tag: "v1", Count: batch, ExternalID: job})
		s.ids = append(s.ids, ids...)
	}
	if err != nil {
		return err
	}
	return s.await(ctx, "the instances", func() (bool, error) {
		stats, err := s.api.Stats(ctx)
		return stats.Instances["Started"] == instances, err
	})
}

// job is what a CI plugin calls its instances.
const job = "http://ci.example/job/42"

// await polls until done returns true. It fails when a program has ended.
func (s *stage) await(ctx context.Context, what string, done func() (bool, error)) error {
	processes := []*rig.Process{s.cloud.Process, s.fleet}
	return runner.Wait{What: what, Limit: joinLimit, Every: awaitEvery, Processes: processes}.Await(ctx, done)
}

const (
	joinLimit  = 3 * time.Minute
	awaitEvery = 250 * time.Millisecond
)

// close ends the programs: the fleet first, so that no node is lost.
func (s *stage) close() (err error) {
	if s.fleet != nil {
		err = s.fleet.End()
	}
	return errors.Join(err, s.cloud.End())
}
