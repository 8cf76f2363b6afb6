package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// arrangement is how a cloud runs and how its old programs end.
type arrangement struct {
	name  string
	split bool // controller and registry are two processes
	kill  bool // by a signal that they cannot catch
}

// cloud is a cloud of the old programs that becomes one of the new programs.
type cloud struct {
	b   *builds
	dir string
	arrangement

	controller, registry, metrics, registryMetrics, nodeMetrics string // addresses

	services map[string]*rig.Process // by their names: cloud, or controller and registry
	node     *rig.Process            // an agent
	fleet    *rig.Process            // simulated nodes of one process

	templates map[string]string // IDs by names
	instances map[string]string // IDs by names
	nodes     map[string]string // IDs by names
	before    map[string]any    // answers by routes
	events    string            // IDs of the old events
	exported  map[string]map[string]family
	values    map[string]string // of the old commands
}

func newCloud(b *builds, dir string, a arrangement) *cloud {
	return &cloud{
		b: b, dir: dir, arrangement: a, services: map[string]*rig.Process{}, templates: map[string]string{},
		instances: map[string]string{}, nodes: map[string]string{}, before: map[string]any{},
		exported: map[string]map[string]family{}, values: map[string]string{},
	}
}

// rootToken is the token of the root user.
const rootToken = "t0ken-of-the-root-user" //nolint:gosec // of a cloud that this test makes

func (c *cloud) file(name string) string { return filepath.Join(c.dir, name) }

// prepare chooses addresses and writes the files of the settings.
func (c *cloud) prepare(ctx context.Context) error {
	if err := rig.MakeDir(c.dir); err != nil {
		return err
	}
	for _, addr := range []*string{&c.controller, &c.registry, &c.metrics, &c.registryMetrics, &c.nodeMetrics} {
		var err error
		if *addr, err = rig.FreeAddr(ctx); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o600)
	if c.kill {
		// The old services accepted files that others can read; the new ones refuse them.
		mode = 0o644
		if err := os.Mkdir(c.file("controller-data"), 0o755); err != nil {
			return err
		}
	}
	err := os.WriteFile(c.file("root-token"), []byte(rootToken+"\n"), mode)
	if err == nil {
		err = os.Chmod(c.file("root-token"), mode)
	}
	if err == nil {
		err = os.WriteFile(c.file("own-token"), []byte(rootToken+"\n"), 0o600)
	}
	controller := []string{
		"# A cloud of the old release.", "SVC_DATA_DIR=" + c.file("controller-data"), "SVC_ENABLE_API_KEYS=true",
		"SVC_API_KEYS_SESSION_TTL=5m",
		"SVC_ENABLE_CONTROLLER_AUTHORIZATION=true", "SVC_ENABLE_EVENT_LOGGING=true", "SVC_ENABLE_CENTRAL_LOGGING=true",
		"SVC_INSTANCE_TIME_OUT=2s",
		"SVC_MANAGE_MAC_ADDRESSES=true", "SVC_MAC_ADDR_RANGE=52:54:00:00:00:00-52:54:00:00:00:FF",
		"SVC_ENABLE_METRICS=true",
		"SVC_METRICS_PORT=" + port(c.metrics), "SVC_NODE_ACTIVE_TIMEOUT=30s", "SVC_BACKUP_DIR=" + c.file("backups"),
		"SVC_BACKUP_EVERY=1h",
	}
	registry := []string{"SVC_ENABLE_METRICS=true", "SVC_METRICS_PORT=" +
		port(c.registryMetrics), "SVC_ENABLE_API_KEYS=true", "SVC_ENABLE_EVENT_LOGGING=true"}
	if c.split {
		registry = append(registry, "SVC_BASE_PATH="+c.file("registry-data"))
	} else {
		controller = append(controller, "SVC_REGISTRY_BASE_PATH="+c.file("registry-data"),
			"SVC_ENABLE_REGISTRY_AUTHORIZATION=false")
	}
	return errors.Join(err,
		os.WriteFile(c.file("controller.conf"), []byte(strings.Join(controller, "\n")+"\n"), 0o600),
		os.WriteFile(c.file("registry.conf"), []byte(strings.Join(registry, "\n")+"\n"), 0o600))
}

func port(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// process prepares a service of some programs, with flags, a file and the environment.
func (c *cloud) process(p programs, name string) *rig.Process {
	args := map[string][]string{
		"cloud": {
			"up", "--config", c.file("controller.conf"), "--listen-addr", c.controller, "--registry-listen-address",
			c.registry,
			"--registry", "http://" + c.registry, "--log-level", "debug",
		},
		"controller": {
			"controller", "--config", c.file("controller.conf"), "--listen-addr", c.controller, "--registry",
			"http://" + c.registry, "--log-level", "debug",
		},
		"registry": {
			"registry", "--config", c.file("registry.conf"), "--listen-addr", c.registry, "--log-level",
			"debug",
		},
	}[name]
	s := rig.NewProcess(c.dir, name+"-"+p.commit, p.path("buildyard"), args...)
	s.Set(map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN_FILE": c.file("root-token"),
		"SVC_LOCAL_LISTEN_ADDR": "127.0.0.1:0",
	})
	return s
}

// serviceNames are the names of the services, in the order of an upgrade.
func (c *cloud) serviceNames() []string {
	if c.split {
		return []string{"controller", "registry"}
	}
	return []string{"cloud"}
}

func (c *cloud) address(name string) string {
	if name == "registry" {
		return "http://" + c.registry
	}
	return "http://" + c.controller
}

// start starts a service of some programs and waits until it is ready.
func (c *cloud) start(ctx context.Context, p programs, name string) error {
	s := c.process(p, name)
	if err := s.Start(); err != nil {
		return err
	}
	c.services[name] = s
	return rig.Ready(ctx, s, c.address(name))
}

// stop ends a service as the arrangement says.
func (c *cloud) stop(name string) error {
	if c.kill {
		return c.services[name].Kill()
	}
	return c.services[name].End()
}

// close ends everything that still runs.
func (c *cloud) close() error {
	var errs []error
	for _, p := range append(slices.Collect(maps.Values(c.services)), c.node, c.fleet) {
		if p != nil && p.Running() {
			_, err := p.Rush(20 * time.Second)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// yard runs a command of some programs as the root user.
func (c *cloud) yard(ctx context.Context, p programs, args ...string) (string, error) {
	return c.command(ctx, p.path("buildyard"),
		append(args, "--controller", "http://"+c.controller, "--token-file", c.ownToken())...)
}

// command runs a program; a status other than 0 is an error.
func (c *cloud) command(ctx context.Context, program string, args ...string) (string, error) {
	res, err := execute(ctx, []string{"HOME=" + c.dir, "XDG_CONFIG_HOME="}, program, args...)
	if err == nil && res.code != 0 {
		err = fmt.Errorf("status %d", res.code)
	}
	if err != nil {
		return res.stdout, fmt.Errorf("%s %s: %w: %s", lastWord(program), strings.Join(args, " "), err, res.stderr)
	}
	return res.stdout, nil
}

// envelope is the form of every answer.
type envelope struct {
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Body    json.RawMessage `json:"body"`
}

// request is a call of a service; header may be nil.
type request struct {
	method, address string
	in              any // body, as JSON; nil: none
	header          map[string]string
}

// call sends a request to a service as the root user and decodes the body of the answer.
func (c *cloud) call(ctx context.Context, r request, out any) error {
	var body io.Reader
	if r.in != nil {
		raw, err := json.Marshal(r.in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.address, body)
	if err != nil {
		return err
	}
	req.SetBasicAuth("root", rootToken)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer envelope
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s %s: HTTP %d: %w", r.method, r.address, resp.StatusCode, err)
	}
	if answer.Status != "OK" {
		return fmt.Errorf("%s %s: HTTP %d: %s", r.method, r.address, resp.StatusCode, answer.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Body, out)
}

// get reads a route of the controller, or of the registry when it begins with "registry:".
func (c *cloud) get(ctx context.Context, route string) (v any, err error) {
	address := "http://" + c.controller + route
	if path, ok := strings.CutPrefix(route, "registry:"); ok {
		address = "http://" + c.registry + path
	}
	return v, c.call(ctx, request{http.MethodGet, address, nil, nil}, &v)
}

// settleTime bounds the wait for a state.
const settleTime = 45 * time.Second

// until repeats a check until it succeeds.
func until(ctx context.Context, check func() error) error { return within(ctx, settleTime, check) }

// within repeats a check until it succeeds or a time has passed.
func within(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if !rig.Pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// instance is what the cases read of an instance.
type instance struct {
	State   string `json:"instance_state"`
	Message string `json:"message"`
	NodeID  string `json:"node_id"`
	VMInfo  struct {
		UUID string `json:"uuid"`
	} `json:"vminfo"`
}

func (c *cloud) instance(ctx context.Context, id string) (i instance, err error) {
	return i, c.call(ctx, request{http.MethodGet, "http://" + c.controller + "/api/v1/vm?id=" + id, nil, nil}, &i)
}

// inState waits until an instance has a state.
func (c *cloud) inState(ctx context.Context, id, state string) (i instance, err error) {
	return i, until(ctx, func() error {
		if i, err = c.instance(ctx, id); err != nil {
			return err
		}
		if i.State != state {
			return fmt.Errorf("instance %s is %s (%s), want %s", id, i.State, i.Message, state)
		}
		return nil
	})
}

// gone waits until an instance is in the history.
func (c *cloud) gone(ctx context.Context, id string) error {
	return until(ctx, func() error {
		_, err := c.get(ctx, "/api/v1/vm/history?id="+id)
		return err
	})
}

// begin starts an instance and returns its ID.
func (c *cloud) begin(ctx context.Context, fields map[string]any, header map[string]string) (string, error) {
	var ids []string
	if err := c.call(ctx, request{http.MethodPost, "http://" + c.controller + "/api/v1/vm", fields, header},
		&ids); err != nil {
		return "", err
	}
	return ids[0], nil
}

// terminate ends an instance and waits until it is in the history.
func (c *cloud) terminate(ctx context.Context, id string) error {
	if err := c.call(ctx, request{http.MethodDelete, "http://" + c.controller +
		"/api/v1/vm", map[string]any{"id": id}, nil}, nil); err != nil {
		return err
	}
	return c.gone(ctx, id)
}

// active waits until a node is Active.
func (c *cloud) active(ctx context.Context, id string) error {
	return until(ctx, func() error {
		var list []struct {
			ID    string `json:"node_id"`
			State string `json:"state"`
		}
		if err := c.call(ctx, request{http.MethodGet, "http://" + c.controller + "/api/v1/node?id=" + id, nil, nil},
			&list); err != nil {
			return err
		}
		if len(list) != 1 || list[0].State != "Active" {
			return fmt.Errorf("node %s: %+v", id, list)
		}
		return nil
	})
}
