package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// quiet drops the messages of servers and proxies about broken connections.
var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)

// cloud is a controller and a registry with their nodes, and a proxy before each.
type cloud struct {
	name                 string
	stage                *stage
	dir                  string
	controller, registry string // addresses
	data, base           string // directories
	services             []*rig.Process
	fleets               map[string]*rig.Process
	proxies              []*proxy // of controller and registry
	vars                 vars
}

// stage is everything that a run has started.
type stage struct {
	dir      string
	programs rig.Programs
	spec     *spec
	ledger   *coverage
	record   *recorder // nil: nothing is recorded
	clouds   map[string]*cloud
	receiver *receiver // of the events of "split"
	access   *access   // the credentials of the calls
}

// The settings of a cloud. What takes minutes in a real one takes seconds here.
var hurried = map[string][]string{
	"up": {"--instance-time-out", "4s", "--enable-event-logging"},
	"split": {
		"--instance-time-out", "1s", "--start-timeout", "4s", "--node-active-timeout", "8s",
		"--instance-active-timeout", "4s",
		"--unknown-vm-threshold", "2", "--manage-mac-addresses", "--mac-addr-range",
		"52:54:00:00:00:00-52:54:00:00:0F:FF",
	},
}

// fleet is a process of simulated nodes of a cloud.
type fleet struct {
	cloud, name string
	args        []string
}

// fleets are the nodes: good ones that really pull and push, and some with a fate of their
// own, to which cases pin their instances.
var fleets = []fleet{
	{"up", "work", []string{
		"--nodes", "2", "--real-pull", "--data-dir", "work", "--capacity", "200", "--boot",
		"150ms",
	}},
	{"split", "work", []string{
		"--nodes", "1", "--real-pull", "--data-dir", "work", "--capacity", "200", "--boot",
		"50ms",
	}},
	{"split", "slow", []string{"--nodes", "1", "--capacity", "50", "--pull", "2s", "--boot", "400ms"}},
	{"split", "failing", []string{"--nodes", "1", "--capacity", "50", "--boot", "50ms", "--boot-failure", "1"}},
	{"split", "stuck", []string{"--nodes", "1", "--capacity", "50", "--boot", "10m"}},
	{"split", "lost", []string{"--nodes", "1", "--data-dir", "lost", "--capacity", "50"}},
	{"split", "gone", []string{"--nodes", "1", "--data-dir", "gone", "--capacity", "50"}},
	{"split", "full", []string{"--nodes", "1", "--capacity", "1"}},
}

// openStage starts the clouds. A returned stage must be closed, also after an error.
func openStage(ctx context.Context, st *stage) (*stage, error) {
	st.ledger, st.clouds = newLedger(), map[string]*cloud{}
	st.ledger.record = st.record
	var err error
	if st.receiver, err = openReceiver(ctx); err != nil {
		return st, err
	}
	errs := make(chan error)
	for _, name := range []string{"up", "split"} {
		c := &cloud{name: name, stage: st, dir: filepath.Join(st.dir,
			name), fleets: map[string]*rig.Process{}, vars: vars{}}
		st.clouds[name] = c
		go func() { errs <- st.open(ctx, c) }()
	}
	return st, errors.Join(<-errs, <-errs)
}

// open starts one cloud: services, templates, nodes.
func (st *stage) open(ctx context.Context, c *cloud) error {
	if err := rig.MakeDir(c.dir); err != nil {
		return err
	}
	if err := st.serve(ctx, c); err != nil {
		return err
	}
	if err := st.access.enroll(ctx, c, c.proxies...); err != nil {
		return err
	}
	if err := st.fill(ctx, c); err != nil {
		return err
	}
	token, err := rig.Output(ctx, "", st.programs.Path("buildyard"), "node", "token", "--data-dir", c.data)
	if err != nil {
		return err
	}
	if c.vars["token"] = token; st.access != nil {
		st.access.secrets.Note("join token", token)
	}
	for _, f := range fleets {
		if f.cloud != c.name {
			continue
		}
		args := append([]string{
			"sim", "--controller", c.proxies[0].address, "--token", token, "--name", f.name,
			"--log-level", "warn",
		}, f.args...)
		for i, a := range args {
			if i > 0 && args[i-1] == "--data-dir" {
				args[i] = filepath.Join(c.dir, a)
			}
		}
		c.fleets[f.name] = rig.NewProcess(c.dir, f.name, st.programs.Path("buildnode"), args...)
		if err := c.fleets[f.name].Start(); err != nil {
			return err
		}
	}
	return st.meet(ctx, c)
}

// serve starts controller and registry, in one process or in two, and the proxies.
func (st *stage) serve(ctx context.Context, c *cloud) error {
	addrs := make([]string, 2)
	for i := range addrs {
		addr, err := rig.FreeAddr(ctx)
		if err != nil {
			return err
		}
		addrs[i] = addr
		p, err := openProxy(ctx, st, st.access.scheme()+addr)
		if err != nil {
			return err
		}
		c.proxies = append(c.proxies, p)
	}
	scheme := st.access.scheme()
	c.controller, c.registry = scheme+addrs[0], scheme+addrs[1]
	c.data, c.base = filepath.Join(c.dir, "controller"), filepath.Join(c.dir, "registry")
	args := append([]string{
		"--listen-addr", addrs[0], "--data-dir", c.data, "--registry", c.proxies[1].address,
		"--log-level", st.access.logLevel(),
	}, hurried[c.name]...)
	program := st.programs.Path("buildyard")
	if c.name == "split" {
		args = append(args, "--enable-event-logging", "--event-log-url", st.receiver.address)
	}
	if c.name == "up" {
		args = append([]string{"up", "--registry-listen-address", addrs[1], "--registry-base-path", c.base}, args...)
		c.services = []*rig.Process{rig.NewProcess(c.dir, "up", program, args...)}
	} else {
		c.services = []*rig.Process{
			rig.NewProcess(c.dir, "registry-service", program, "registry", "--listen-addr", addrs[1], "--base-path",
				c.base, "--log-level", st.access.logLevel()),
			rig.NewProcess(c.dir, "controller-service", program, append([]string{"controller"}, args...)...),
		}
	}
	for _, p := range c.services {
		p.Set(st.access.settings())
		if err := p.Start(); err != nil {
			return err
		}
	}
	if err := st.access.ready(ctx, c.services[0], c.registry); err != nil {
		return err
	}
	return st.access.ready(ctx, c.services[len(c.services)-1], c.controller)
}

// Templates that every cloud has, each with the tags v1, v2 and v3.
var templates = []string{"base", "plain"}

// fill makes local templates and pushes versions of them, as the owner of a node does.
func (st *stage) fill(ctx context.Context, c *cloud) error {
	program := st.programs.Path("buildnode")
	home, remote := []string{"--data-dir", filepath.Join(c.dir, "author")},
		append([]string{"registry", "--remote", st.access.remote(c)}, st.access.arguments(c)...)
	run := func(args ...string) (string, error) { return rig.Output(ctx, "", program, append(args, home...)...) }
	for _, name := range templates {
		if _, err := run("vm", "create", "--name", name, "--disk-size", "16M", "--cpu", "1", "--ram",
			"256M"); err != nil {
			return err
		}
		for _, tag := range []string{"v1", "v2", "v3"} {
			if _, err := run(slices.Concat(remote, []string{"push", name, "--tag", tag})...); err != nil {
				return err
			}
		}
	}
	if _, err := run(slices.Concat(remote, []string{"pull", "plain", "--tag", "v1"})...); err != nil {
		return err
	}
	return nil
}

// meet waits for the nodes and learns the ids that cases need.
func (st *stage) meet(ctx context.Context, c *cloud) error {
	call := rig.NewClient(c.controller).By(st.access.by(c.proxies[0]))
	var list []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := call.Send(ctx, "GET", "/api/v1/registry/vm", nil, &list); err != nil {
		return err
	}
	for _, t := range list {
		c.vars["template_"+t.Name] = t.ID
	}
	c.vars["template"] = c.vars["template_base"]
	hand, err := c.join(ctx, "hand")
	if err != nil {
		return err
	}
	c.vars["node_hand"], c.vars["secret_hand"] = hand.id, hand.secret
	c.vars["nobody"], c.vars["controller"], c.vars["registry"] = unknownID, c.controller, c.registry
	want := 0
	for _, f := range fleets {
		if f.cloud == c.name {
			want++
			if f.args[1] == "2" {
				want++
			}
		}
	}
	for deadline := time.Now().Add(rig.ReadyTime); ; {
		var nodes []struct {
			ID      string `json:"node_id"`
			Name    string `json:"node_name"`
			State   string `json:"state"`
			Version struct {
				Product string `json:"product"`
			} `json:"anka_version"`
		}
		if err := call.Send(ctx, "GET", "/api/v1/node", nil, &nodes); err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes {
			if n.State == "Active" && n.Version.Product != "" {
				ready++
				c.vars["node_"+strings.ReplaceAll(strings.TrimSuffix(n.Name, "-0001"), "-0002", "2")] = n.ID
			}
		}
		if ready == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d nodes are ready", ready, want)
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// cloud returns a cloud by its name; "" is "up".
func (st *stage) cloud(name string) *cloud {
	if name == "" {
		name = "up"
	}
	return st.clouds[name]
}

func (st *stage) vars(name string) vars { return maps.Clone(st.cloud(name).vars) }

// door is where a request is sent, and over which connections.
type door struct {
	address string
	by      http.RoundTripper
}

// door returns that of the service that has a path.
func (st *stage) door(name, service, path string) door {
	c := st.cloud(name)
	ofRegistry := strings.HasPrefix(path, "/registry") || path == "/log" || strings.HasPrefix(path, "/log/") ||
		strings.HasPrefix(path, "/v1/")
	if service == "registry" || service == "" && ofRegistry {
		return door{c.registry, st.access.by(c.proxies[1])}
	}
	return door{c.controller, st.access.by(c.proxies[0])}
}

// close ends the programs, nodes first.
func (st *stage) close() error {
	var errs []error
	if st.receiver != nil {
		errs = append(errs, st.receiver.server.Close())
	}
	for _, c := range st.clouds {
		for _, p := range c.fleets {
			errs = append(errs, p.End())
		}
		for _, p := range c.services {
			errs = append(errs, p.End())
		}
		for _, p := range c.proxies {
			p.close()
		}
	}
	return errors.Join(errs...)
}

// tails returns the last output of the services, for a report of a failure.
func (st *stage) tails() string {
	var out strings.Builder
	for _, c := range st.clouds {
		for _, p := range c.services {
			fmt.Fprintf(&out, "--- %s of %s\n%s\n", p.Name, c.name, p.Tail())
		}
	}
	return out.String()
}
