package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// packageVersion is newer than every agent of a run.
const packageVersion = "99.0.0-contract"

// agentPackages puts packages into a controller's directory, loads them, and updates nodes to them:
// the simulated ones follow automatically, on demand all together.
func agentPackages(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	program := p.stage.programs.Path("buildyard")
	dir, key := filepath.Join(c.data, "pkg"), filepath.Join(c.dir, "packages.key")
	if _, err := rig.Output(ctx, "", program, "package", "keygen", "--key", key); err != nil {
		return err
	}
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	for _, name := range []string{
		"buildnode-linux-amd64.tar.gz", "buildnode-darwin-amd64.tar.gz", "buildnode-darwin-arm64.tar.gz",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package "+name), 0o600); err != nil {
			return err
		}
	}
	if _, err := rig.Output(ctx, "", program, "package", "sign", "--key", key, "--version", packageVersion,
		dir); err != nil {
		return err
	}
	id, err := c.start(ctx, "node_work", "Started")
	if err != nil {
		return err
	}
	if err := errors.Join(c.replaceToken(ctx), c.loadPackages(ctx), c.rollOut(ctx)); err != nil {
		return err
	}
	if err := c.caller().Send(ctx, "PUT", "/api/v1/node/update",
		map[string]any{"node_ids": []any{c.vars["node_work"], c.vars["node_work2"]}}, nil); err != nil {
		return err
	}
	for _, node := range []string{"node_work", "node_work2"} {
		if err := c.awaitVersion(ctx, c.vars[node]); err != nil {
			return err
		}
	}
	if err := c.await(ctx, id, func(i api.Instance) bool { return i.InstanceState == "Started" }); err != nil {
		return fmt.Errorf("over the update of its node: %w", err)
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil)
}

// replaceToken replaces the permanent join token, with which nodes and packages are requested.
func (c *cloud) replaceToken(ctx context.Context) error {
	var made api.JoinToken
	err := c.caller().Send(ctx, "POST", api.PathJoinTokens, api.CreateJoinToken{Replace: true}, &made)
	if err == nil && (made.Token == "" || !made.Permanent) {
		return fmt.Errorf("the permanent token was not replaced: %+v", made)
	}
	if err == nil {
		c.vars["token"] = made.Token
	}
	return err
}

// rollOut starts rollouts, and ends them.
func (c *cloud) rollOut(ctx context.Context) error {
	var group api.Group
	err := c.caller().Send(ctx, "POST", "/api/v1/group", map[string]string{"name": "canary"}, &group)
	if err != nil {
		return err
	}
	for _, r := range []api.StartRollout{
		{BatchNodes: 1, MaxFailures: 1, CanaryGroups: []string{group.ID}, CanaryWait: "1s"}, {BatchPercent: 20},
	} {
		var started, ended api.AgentRollout
		err := errors.Join(c.caller().Send(ctx, "POST", api.PathRollout, r, &started),
			c.caller().Send(ctx, "PUT", api.PathRollout, api.ChangeRollout{Action: "pause", Reason: "contract"}, nil),
			c.caller().Send(ctx, "PUT", api.PathRollout, api.ChangeRollout{Action: "resume"}, nil),
			c.caller().Send(ctx, "PUT", api.PathRollout, api.ChangeRollout{Action: "abort"}, nil),
			c.caller().Send(ctx, "GET", api.PathRollout, nil, &ended))
		if err != nil {
			return fmt.Errorf("rollout %+v: %w", r, err)
		}
		if ended.ID != started.ID || ended.State != "Aborted" {
			return fmt.Errorf("rollout %s is %s: %s", ended.ID, ended.State, ended.Reason)
		}
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/group?id="+group.ID, nil, nil)
}

// loadPackages waits for the packages and loads them under all their names.
func (c *cloud) loadPackages(ctx context.Context) error {
	for name, want := range map[string]string{
		"buildnode-linux-amd64.tar.gz": "package buildnode-linux-amd64.tar.gz",
		"AnkaAgent.pkg":                "package buildnode-darwin-amd64.tar.gz",
		"AnkaAgentArm.pkg":             "package buildnode-darwin-arm64.tar.gz",
	} {
		var err error
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if err = c.load(ctx, name, want); err == nil || !rig.Pause(ctx, pause) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cloud) load(ctx context.Context, name, want string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.proxies[0].address+"/pkg/"+name, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth("", fmt.Sprint(c.vars["token"]))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Equal(got, []byte(want))) {
		err = errors.New("answered " + resp.Status)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	return nil
}

// awaitVersion waits until a node is Active with the new agent.
func (c *cloud) awaitVersion(ctx context.Context, id any) error {
	var list []api.Node
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err := c.caller().Send(ctx, "GET", fmt.Sprint("/api/v1/node?id=", id), nil, &list); err != nil {
			return err
		}
		if len(list) == 1 && list[0].AgentVersion == packageVersion && list[0].State == "Active" {
			return nil
		}
		if !rig.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("node %v does not become %s: %+v", id, packageVersion, list)
}
