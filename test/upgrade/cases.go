package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// upgrade are the cases of a cloud that changes from the old programs to the new ones.
func upgrade(b *builds, dir string, a arrangement) group {
	c := newCloud(b, dir, a)
	g := group{name: a.name, close: c.close}
	add := func(name string, loose bool, play func(context.Context) (string, error)) {
		g.steps = append(g.steps, step{name: name, play: play, loose: loose})
	}
	add("old cloud with data", false, c.fill)
	add("records before", false, c.remember)
	if c.kill {
		add("what the new programs refuse, and what the guide says", false, c.refused)
	}
	if c.split {
		add("new controller with the old registry", false, c.mixed)
	}
	add("new services with the old directories, settings and flags", false, c.replace)
	for _, route := range c.routes() {
		add("listed as before: "+route, true,
			func(ctx context.Context) (string, error) { return c.compare(ctx, route) })
	}
	add("running instances stay on the old agents", true, c.running)
	add("idempotency key", true, c.idempotency)
	add("API key and permissions", true, c.apiKey)
	add("events", true, c.eventLog)
	add("start on an old agent", true, c.startAnother)
	add("pending instance starts on an old agent", true, c.pending)
	add("terminate on an old agent", true, c.end)
	add("save and restart on an old agent", true, c.save)
	add("cache jobs on old agents", true, c.cacheJobs)
	if !c.split {
		add("old commands", true, c.oldCommands)
	}
	add("old Go client", true, c.oldClient)
	add("metrics", true, c.compareServices)
	add("new agents with the directories of the old ones", false, c.replaceAgents)
	add("start, terminate and cache job on the new agents", true, c.newAgents)
	add("backup of the old controller", true, c.restore)
	add("back to the old programs", true, c.back)
	return g
}

// routes are the lists that must not change. "$NAME" is the ID of a template.
func (c *cloud) routes() []string {
	return []string{
		"/api/v1/vm", "/api/v1/vm/history", "/api/v1/node", "/api/v1/group", "/api/v1/image", "/api/v1/registry/vm",
		"/api/v1/registry/vm?id=$debian", "/api/v1/registry/vm?id=$alpine", "/api/v1/registry/vm/distribute",
		"/api/v1/registry/vm/nodes?id=$alpine",
		"/api/v1/apikey", "/admin/api/v1/permission/group", "/api/v1/usb", "/api/v1/vlan", "/api/v1/macaddr?limit=300",
		"/api/v1/registry/files",
		"registry:/registry/vm", "registry:/registry/v2/vm",
	}
}

// volatile are fields that change while nothing happens.
var volatile = regexp.MustCompile(
	`(free_disk_space|disk_size|anka_disk_usage|cpu_util|ram_util|access_date|timestamp|last_seen|free_space|\.ts|modified|last_updated)$`)

// anyID is an ID in a text.
var anyID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (c *cloud) fetch(ctx context.Context, route string) (any, error) {
	path, name, ok := strings.Cut(route, "$")
	if ok {
		path += c.templates[name]
	}
	return c.get(ctx, path)
}

// remember keeps what is listed, and exported, before the upgrade.
func (c *cloud) remember(ctx context.Context) (string, error) {
	if err := c.settle(ctx); err != nil {
		return "", err
	}
	for _, route := range c.routes() {
		v, err := c.fetch(ctx, route)
		if err != nil {
			return "", err
		}
		c.before[route] = v
	}
	for name, address := range c.metricsAddresses() {
		all, err := scrape(ctx, address, nil)
		if err != nil {
			return "", err
		}
		c.exported[name] = all
	}
	events, err := c.yard(ctx, c.b.old, "event", "list", "-o", "name")
	if err != nil {
		return "", err
	}
	c.events = events
	c.values["event"], _, _ = strings.Cut(events, "\n")
	for _, name := range []string{"on-agent", "on-fleet"} {
		i, err := c.instance(ctx, c.instances[name])
		if err != nil {
			return "", err
		}
		c.before[name] = i
	}
	return fmt.Sprintf("%d routes, %d events", len(c.routes()), strings.Count(events, "\n")+1), nil
}

// settle waits until finished instances have left the lists and all nodes have reported their caches.
func (c *cloud) settle(ctx context.Context) error {
	return until(ctx, func() error {
		list, err := c.get(ctx, "/api/v1/vm")
		if err != nil {
			return err
		}
		if all, _ := list.([]any); len(all) != len(c.instances)-2 { // one was terminated, one saved
			return fmt.Errorf("%d instances are listed", len(all))
		}
		holders, err := c.get(ctx, "/api/v1/registry/vm/nodes?id="+c.templates["alpine"])
		if err != nil {
			return err
		}
		if all, _ := holders.([]any); len(all) != len(c.nodes) {
			return fmt.Errorf("%d nodes report a template that was distributed to %d", len(all), len(c.nodes))
		}
		return nil
	})
}

func (c *cloud) metricsAddresses() map[string]string {
	all := map[string]string{"controller": "http://" + c.metrics + "/metrics", "node": "http://" + c.nodeMetrics +
		"/metrics"}
	if c.split {
		all["registry"] = "http://" + c.registryMetrics + "/metrics"
	}
	return all
}

// refused starts the new controller with what it refuses on purpose, and does what docs/upgrade.md
// says.
func (c *cloud) refused(ctx context.Context) (string, error) {
	for _, name := range c.serviceNames() {
		if err := c.stop(name); err != nil {
			return "", err
		}
	}
	refuse := func(what, want string, env map[string]string) error {
		s := c.process(c.b.new, "controller")
		s.Log += "-refused"
		_ = os.Remove(s.Log)
		s.Set(env)
		if err := s.Start(); err != nil {
			return err
		}
		for range 300 {
			if !s.Running() || !rig.Pause(ctx, 100*time.Millisecond) {
				break
			}
		}
		if s.Running() {
			return errors.Join(fmt.Errorf("%s is accepted", what), s.Kill())
		}
		if said := s.Tail(); !strings.Contains(said, want) {
			return fmt.Errorf("%s: the message does not name %q: %s", what, want, said)
		}
		return nil
	}
	if err := refuse("an unknown setting", "unknown setting SVC_NODE_TIMEOUT",
		map[string]string{"SVC_NODE_TIMEOUT": "5m"}); err != nil {
		return "", err
	}
	if err := refuse("a token file that others can read", "root-token", nil); err != nil {
		return "", err
	}
	if err := os.Chmod(c.file("root-token"), 0o600); err != nil {
		return "", err
	}
	if err := refuse("a data directory that others can read", "chmod 700", nil); err != nil {
		return "", err
	}
	if err := os.Chmod(c.file("controller-data"), 0o700); err != nil {
		return "", err
	}
	if c.split {
		if err := c.start(ctx, c.b.old, "registry"); err != nil {
			return "", err
		}
	}
	return "an unknown SVC_ variable, a token file and a data directory that others can read; chmod helps", nil
}

// mixed runs the new controller with the old registry, as in the order of docs/upgrade.md.
func (c *cloud) mixed(ctx context.Context) (string, error) {
	if c.services["controller"].Running() {
		if err := c.stop("controller"); err != nil {
			return "", err
		}
	}
	if err := c.start(ctx, c.b.new, "controller"); err != nil {
		return "", err
	}
	if err := c.active(ctx, c.nodes[agentName]); err != nil {
		return "", err
	}
	id, err := c.begin(ctx, map[string]any{"vmid": c.templates["debian"], "tag": "v1", "node_id": c.nodes[agentName]},
		nil)
	if err != nil {
		return "", err
	}
	if _, err := c.inState(ctx, id, "Started"); err != nil {
		return "", err
	}
	if err := c.terminate(ctx, id); err != nil {
		return "", err
	}
	// The history has one more now.
	c.before["/api/v1/vm/history"], err = c.fetch(ctx, "/api/v1/vm/history")
	return "an old agent pulls from the old registry by a token of the new controller, and starts", err
}

// replace stops what is old and starts the new services.
func (c *cloud) replace(ctx context.Context) (string, error) {
	for _, name := range c.serviceNames() {
		if s := c.services[name]; s.Running() {
			if name == "controller" && c.split {
				continue // it is new
			}
			if err := c.stop(name); err != nil {
				return "", err
			}
		}
		if err := c.start(ctx, c.b.new, name); err != nil {
			return "", err
		}
	}
	for _, id := range c.nodes {
		if err := c.active(ctx, id); err != nil {
			return "", err
		}
	}
	how := "stopped"
	if c.kill {
		how = "killed"
	}
	return fmt.Sprintf("the old ones were %s; %d nodes with old agents are Active", how, len(c.nodes)), nil
}

// compare requires that a route lists what it listed.
func (c *cloud) compare(ctx context.Context, route string) (string, error) {
	var now any
	err := until(ctx, func() (err error) {
		if now, err = c.fetch(ctx, route); err != nil {
			return err
		}
		return missingIn(c.before[route], now, volatile)
	})
	count := "equal"
	if list, ok := now.([]any); ok {
		count = fmt.Sprintf("%d entries are equal", len(list))
	}
	return count, err
}

// running requires that instances that ran still run, in the VMs they had.
func (c *cloud) running(ctx context.Context) (string, error) {
	for _, name := range []string{"on-agent", "on-fleet"} {
		now, err := c.inState(ctx, c.instances[name], "Started")
		if err != nil {
			return "", err
		}
		if was, _ := c.before[name].(instance); now.VMInfo.UUID != was.VMInfo.UUID || now.NodeID != was.NodeID {
			return "", fmt.Errorf("%s is %+v, before %+v", name, now, was)
		}
	}
	if !c.node.Running() || !c.fleet.Running() {
		return "", errors.New("an old agent has ended")
	}
	return fmt.Sprintf("the VMs of agent process %d and fleet process %d are the same", c.node.PID(), c.fleet.PID()),
		nil
}

// idempotency repeats a start with its key.
func (c *cloud) idempotency(ctx context.Context) (string, error) {
	id, err := c.begin(ctx, map[string]any{
		"vmid": c.templates["debian"], "name": "on-fleet", "tag": "v1", "external_id": "job-2", "priority": 10,
	},
		map[string]string{"Idempotency-Key": "key-of-job-2"})
	if err == nil && id != c.instances["on-fleet"] {
		err = fmt.Errorf("instance %s was started, want %s", id, c.instances["on-fleet"])
	}
	return "a repeated start returns the instance of before", err
}

// apiKey uses a key of before, and finds its permissions enforced.
func (c *cloud) apiKey(ctx context.Context) (string, error) {
	flags := []string{"--controller", "http://" + c.controller, "--key-id", "ci", "--key-file", c.file("ci.key")}
	for _, p := range []programs{c.b.old, c.b.new} {
		if _, err := c.command(ctx, p.path("buildyard"),
			append([]string{"instance", "list"}, flags...)...); err != nil {
			return "", err
		}
		res, err := execute(ctx, []string{"HOME=" + c.dir}, p.path("buildyard"),
			append([]string{"group", "list"}, flags...)...)
		if err != nil || res.code != 6 {
			return "",
				errors.Join(err, fmt.Errorf("without permission: status %d: %s %s", res.code, res.stdout, res.stderr))
		}
	}
	return "the key lists instances and may not list groups, by the old command and the new one", nil
}

// eventLog requires that the events of before are listed.
func (c *cloud) eventLog(ctx context.Context) (string, error) {
	count := 0
	err := until(ctx, func() error {
		now, err := c.yard(ctx, c.b.new, "event", "list", "-o", "name")
		if err != nil {
			return err
		}
		count = strings.Count(now, "\n") + 1
		if lost := linesNotIn(c.events, now); len(lost) > 0 {
			return fmt.Errorf("events of before are missing: %v", lost)
		}
		return nil
	})
	return fmt.Sprintf("%d of before, %d now", strings.Count(c.events, "\n")+1, count), err
}

func linesNotIn(some, all string) (lost []string) {
	known := map[string]bool{}
	for line := range strings.SplitSeq(all, "\n") {
		known[line] = true
	}
	for line := range strings.SplitSeq(some, "\n") {
		if !known[line] {
			lost = append(lost, line)
		}
	}
	return lost
}

// startOn starts an instance of a tag on a node, and ends it.
func (c *cloud) startOn(ctx context.Context, template, tag, node string) error {
	id, err := c.begin(ctx, map[string]any{"vmid": c.templates[template], "tag": tag, "node_id": c.nodes[node]}, nil)
	if err != nil {
		return err
	}
	if _, err := c.inState(ctx, id, "Started"); err != nil {
		return fmt.Errorf("on %s: %w", node, err)
	}
	return c.terminate(ctx, id)
}

func (c *cloud) startAnother(ctx context.Context) (string, error) {
	count := 0
	for name := range c.nodes {
		if err := c.startOn(ctx, "debian", "v3", name); err != nil {
			return "", err
		}
		count++
	}
	return fmt.Sprintf("a tag that was not cached is pulled and started on %d nodes", count), nil
}

// pending lets the pending instance start.
func (c *cloud) pending(ctx context.Context) (string, error) {
	i, err := c.instance(ctx, c.instances["pending"])
	if err != nil || i.State != "Scheduling" {
		return "", errors.Join(err, fmt.Errorf("it is %s", i.State))
	}
	if _, err := c.yard(ctx, c.b.new, "node", "group", "add", agentName, "later"); err != nil {
		return "", err
	}
	i, err = c.inState(ctx, c.instances["pending"], "Started")
	if err == nil && i.NodeID != c.nodes[agentName] {
		err = fmt.Errorf("it is on node %s", i.NodeID)
	}
	return "it waited over the upgrade and starts when its group gets a node", err
}

func (c *cloud) end(ctx context.Context) (string, error) {
	if err := c.terminate(ctx, c.instances["pending"]); err != nil {
		return "", err
	}
	return "an instance of before is terminated and in the history", c.terminate(ctx, c.instances["scripted"])
}

// oldClient runs the program of the old client package.
func (c *cloud) oldClient(ctx context.Context) (string, error) {
	return c.command(ctx, c.b.sdk, "http://"+c.controller, "http://"+c.registry, rootToken, "ci", c.file("ci.key"),
		c.templates["debian"])
}

// compareServices compares the metrics of the services, and of a new agent later.
func (c *cloud) compareServices(ctx context.Context) (string, error) {
	var lines []string
	for name, address := range c.metricsAddresses() {
		if name == "node" {
			continue // its agent is old
		}
		now, err := scrape(ctx, address, nil)
		if err != nil {
			return "", err
		}
		line, err := compareMetrics(c.exported[name], now)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		lines = append(lines, name+": "+line)
	}
	return strings.Join(lines, "; "), nil
}

// restore makes a data directory of the backup that the old program wrote.
func (c *cloud) restore(ctx context.Context) (string, error) {
	dir := c.file("restored")
	if _, err := c.command(ctx, c.b.new.path("buildyard"), "restore", c.file("old.backup"), "--data-dir",
		dir); err != nil {
		return "", err
	}
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return "", err
	}
	s := rig.NewProcess(c.dir, "restored-controller", c.b.new.path("buildyard"), "controller", "--config",
		c.file("controller.conf"), "--data-dir", dir,
		"--listen-addr", addr, "--registry", "http://"+c.registry, "--enable-metrics=false",
		"--enable-central-logging=false", "--enable-event-logging=false")
	s.Set(map[string]string{"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN_FILE": c.file("root-token")})
	if err := s.Start(); err != nil {
		return "", err
	}
	c.services["restored"] = s
	if err := rig.Ready(ctx, s, "http://"+addr); err != nil {
		return "", err
	}
	for _, route := range []string{
		"/api/v1/group", "/api/v1/apikey", "/admin/api/v1/permission/group", "/api/v1/image",
	} {
		var now any
		err := c.call(ctx, request{http.MethodGet, "http://" + addr + route, nil, nil}, &now)
		if err == nil {
			err = missingIn(c.before[route], now, volatile)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", route, err)
		}
	}
	return "a new controller on the restored directory lists the groups, keys, permissions and saves of before", s.End()
}

// back starts the old services on what the new ones wrote, as docs/upgrade.md allows.
func (c *cloud) back(ctx context.Context) (string, error) {
	id, err := c.begin(ctx, map[string]any{"vmid": c.templates["debian"], "tag": "v1", "name": "by-new"}, nil)
	if err != nil {
		return "", err
	}
	if _, err := c.inState(ctx, id, "Started"); err != nil {
		return "", err
	}
	for _, name := range c.serviceNames() {
		if err := c.stop(name); err != nil {
			return "", err
		}
		if err := c.start(ctx, c.b.old, name); err != nil {
			return "", err
		}
	}
	if _, err := c.inState(ctx, id, "Started"); err != nil {
		return "", err
	}
	if err := c.startOn(ctx, "debian", "v4", agentName); err != nil {
		return "", err
	}
	return "an instance of the new program is Started and ends, with new agents and old services", c.terminate(ctx, id)
}
