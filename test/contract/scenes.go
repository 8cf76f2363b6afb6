package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// scenario is a case that needs more than requests: programs that are started, killed or given
// wrong settings, and what is on disks.
type scenario struct {
	name  string
	alone bool     // it changes what others need
	rows  []string // claimed when it went well
	play  func(ctx context.Context, p *caseRunner) error
	auth  bool // only with authentication
}

// scenes in the order in which they begin: those that take longest first.
var scenes = []scenario{
	{"a node is lost, and comes back", false, []string{
		"+5.offline", "-5.offline", "+5.node-lost", "-5.node-lost", "+5.node-restart", "-5.node-restart",
	}, lostNode, false},
	{
		"a node is lost for long", false,
		[]string{"+5.node-gone", "-5.node-gone", "+5.kill-order", "-5.kill-order"},
		goneNode, false,
	},
	{"VMs that nobody owns", false, []string{"+5.unknown-vm"}, undecided, false},
	{
		"VMs that nobody owns and that go", false,
		[]string{"-5.unknown-vm", "+5.many-unknown", "-5.many-unknown"},
		removedOrphans, false,
	},
	{"an instance is terminated twice", false, []string{"+5.twice"}, twice, false},
	{"licences of each tier", false, []string{"+2.tier", "-2.tier"}, tiers, false},
	{"a node with capacity for one", false, []string{"+3.waiting", "-3.waiting", "+5.capacity"}, oneSlot, false},
	{"nodes that count resources", false, []string{"+5.resource-mode"}, resources, false},
	{"settings", false, []string{
		"+8.environment", "-8.environment", "+8.flags", "-8.flags", "+8.file", "-8.file", "+8.wrong", "-8.wrong",
	}, settings, false},
	{"a device, a VLAN and a group of a node", false, []string{"+5.usb"}, devices, false},
	{"an imported disk", false, []string{"+5.ssh-rule", "-5.ssh-rule"}, importedDisk, false},
	{
		"events that are pushed", false,
		[]string{"+6.push", "-6.push", "+6.event-file", "-6.event-file"},
		pushedEvents,
		false,
	},
	{"directories of the registry", true, []string{
		"+7.versions", "-7.versions", "+7.chain", "-7.chain", "+7.shared", "-7.shared",
	}, directories, false},
	{
		"pulls and their times", true,
		[]string{"+5.last-pull", "-5.last-pull", "-3.times", "-3.versions"},
		lastPull,
		false,
	},
	{"the registry is away", true, []string{"+2.not-ready", "-2.not-ready", "-5.steady"}, registryAway, false},
	{"too many streams", true, []string{"+2.too-many", "-2.too-many"}, tooMany, false},
	{"the storage of the registry is broken", true, []string{"+2.internal", "-2.internal"}, brokenStorage, false},
	{"agent packages", true, []string{"+5.packages"}, agentPackages, false},
	{"the key of the cloud", false, nil, cloudProof, false},
	{
		"the controller is killed", true,
		[]string{"+5.controller-restart", "-5.controller-restart"},
		controllerKilled,
		false,
	},
	{name: "handshakes", rows: []string{"+4.handshake"}, play: handshakes, auth: true},
	{"what never was so in the run", true, []string{
		"-3.arch", "-3.progress", "-3.unsigned", "-3.empty-fields", "-3.after-termination",
	}, never, false},
}

// caller calls a cloud as a scene needs it; answers go through the proxy into the ledger.
func (c *cloud) caller() rig.Client { return c.callerOf(c.proxies[0]) }

func (c *cloud) callerOf(p *proxy) rig.Client {
	return rig.NewClient(p.address).By(c.stage.access.by(p))
}

// start starts one instance on a node and waits until it is in a state.
func (c *cloud) start(ctx context.Context, node, state string) (id string, err error) {
	var ids []string
	if err := c.caller().Send(ctx, "POST", "/api/v1/vm",
		map[string]any{"vmid": c.vars["template"], "node_id": c.vars[node]}, &ids); err != nil {
		return "", err
	}
	return ids[0], c.await(ctx, ids[0], func(i api.Instance) bool { return i.InstanceState == state })
}

// patience bounds every wait of a scene.
const patience = 40 * time.Second

// await looks at an instance until it is as wanted.
func (c *cloud) await(ctx context.Context, id string, so func(api.Instance) bool) error {
	var last api.Instance
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		last = api.Instance{}
		if err := c.caller().Send(ctx, "GET", "/api/v1/vm?id="+id, nil, &last); err != nil && !isNotFound(err) {
			return err
		}
		if so(last) {
			return nil
		}
		if !rig.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("instance %s stays %q with message %q", id, last.InstanceState, last.Message)
}

func isNotFound(err error) bool { return err.Error() == "Not found" }

func gone(i api.Instance) bool { return i.InstanceID == "" }

// devices has a node offer a device and a VLAN, and an instance take both.
func devices(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	var group api.Group
	if err := c.caller().Send(ctx, "POST", "/api/v1/group", map[string]string{"name": "with-devices"},
		&group); err != nil {
		return err
	}
	h, err := c.join(ctx, "devices", "with-devices")
	if err != nil {
		return err
	}
	h.info.USB, h.info.VLANs = []api.USBDevice{{Name: "phone", Location: "1-1"}, {Name: "phone", Location: "1-2"}},
		[]int{10, 20}
	h.info.Abilities = []string{"network-bridge", "bridge", "usb", "vlan"}
	if _, err := h.poll(ctx, nil); err != nil {
		return err
	}
	asks := map[string]any{
		"vmid": c.vars["template"], "usb_device": "phone", "vlan_tag": 10, "network_mode": "bridge",
		"group_id": group.ID, "port_forwarding_override": []any{},
	}
	v := vars{"group": group.ID, "node": h.id}
	faults := p.playWith(ctx, sequence{Case: "devices of a node", Steps: []step{
		{Send: "GET /api/v1/usb", OK: map[string]any{"phone/available": 2, "phone/busy": 0}},
		{Send: "GET /api/v1/node?id=$node", OK: map[string]any{
			"0/usb_devices": "!len 2", "0/vlans": "!has 10", "0/groups/0/name": "with-devices",
		}},
		{Send: "POST /api/v1/vm", With: asks, Keep: map[string]string{"id": "0"}},
		{
			Send: "GET /api/v1/vm?id=$id", Within: 5 * time.Second,
			OK: map[string]any{"node_id": "$node", "usb_device": "phone", "vlan": "10"},
		},
		{Send: "GET /api/v1/usb", Within: 5 * time.Second, OK: map[string]any{"phone/available": 1, "phone/busy": 1}},
	}}, v)
	if len(faults) > 0 {
		return faulty(faults)
	}
	if _, err := h.run(ctx, fmt.Sprint(v["id"])); err != nil {
		return err
	}
	faults = p.playWith(ctx, sequence{Case: "another device", Steps: []step{
		{Send: "POST /api/v1/rpc/vm/restart", With: map[string]any{"instance_id": "$id", "usb_device": "1-2"}},
		{Send: "DELETE /api/v1/vm", With: map[string]any{"id": "$id"}},
		{Send: "DELETE /api/v1/node", With: map[string]any{"node_id": "$node"}},
		{Send: "DELETE /api/v1/group?id=$group"},
	}}, v)
	return faulty(faults)
}

// importedDisk pushes an imported disk, which has a rule for ssh, in addition to one that was made.
func importedDisk(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	disk, home := filepath.Join(c.dir, "disk.img"), filepath.Join(c.dir, "importer")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	program := p.stage.programs.Path("buildnode")
	for _, args := range [][]string{
		{"vm", "import", disk, "--format", "raw", "--name", "imported", "--cpu", "1", "--ram", "256M"},
		slices.Concat([]string{"registry", "--remote", c.stage.access.remote(c)}, c.stage.access.arguments(c),
			[]string{"push", "imported", "--tag", "v1"}),
	} {
		if _, err := rig.Output(ctx, "", program, append(args, "--data-dir", home)...); err != nil {
			return err
		}
	}
	id, err := c.templateID(ctx, "imported")
	if err != nil {
		return err
	}
	rules := func(template any) (n int, err error) {
		var config api.TemplateConfig
		err = c.callerOf(c.proxies[1]).Send(ctx, "GET", fmt.Sprint("/registry/vm/info?tag=v1&id=", template),
			nil, &config)
		for _, card := range config.NetworkCards {
			for _, rule := range card.PortRules {
				if rule.RuleName == "ssh" && rule.GuestPort == 22 {
					n++
				}
			}
		}
		return n, err
	}
	if n, err := rules(id); n != 1 || err != nil {
		return fmt.Errorf("an imported disk has %d rules ssh, %w", n, err)
	}
	var ids []string
	if err := c.caller().Send(ctx, "POST", "/api/v1/vm", map[string]any{"vmid": id}, &ids); err != nil {
		return err
	}
	if err := c.await(ctx, ids[0], func(i api.Instance) bool {
		return i.VMInfo != nil && slices.ContainsFunc(i.VMInfo.PortForwarding,
			func(r api.Port) bool { return r.Name == "ssh" && r.GuestPort == 22 && r.HostPort > 0 })
	}); err != nil {
		return err
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": ids[0]}, nil)
}

func (c *cloud) templateID(ctx context.Context, name string) (string, error) {
	var list []api.Template
	if err := c.caller().Send(ctx, "GET", "/api/v1/registry/vm", nil, &list); err != nil {
		return "", err
	}
	for _, t := range list {
		if t.Name == name {
			return t.ID, nil
		}
	}
	return "", fmt.Errorf("template %q not found", name)
}

// directories reads the registry's storage as scanners and scripts do, and compares it with the
// registry's answers.
func directories(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	registry := c.callerOf(c.proxies[1])
	var list []api.Template
	if err := registry.Send(ctx, "GET", "/registry/v2/vm", nil, &list); err != nil {
		return err
	}
	longest, states, shared := 0, 0, map[string]int{}
	for _, t := range list {
		var d api.TemplateDetail
		if err := registry.Send(ctx, "GET", "/registry/v2/vm?id="+t.ID, nil, &d); err != nil {
			return err
		}
		for _, v := range d.Versions {
			dir := filepath.Join(c.base, "vm_dir", d.ID, fmt.Sprint(v.Number))
			if err := layerList(c.base, filepath.Join(dir, "images"), "images_dir", v.Images); err != nil {
				return err
			}
			if err := layerList(c.base, filepath.Join(dir, "state_files"), "state_file_dir", v.StateFiles); err != nil {
				return err
			}
			_, err := os.Stat(filepath.Join(dir, d.ID+".yaml"))
			_, without := os.Stat(filepath.Join(dir, "nvram"))
			if err != nil || (v.NVRAM == "nvram") != (without == nil) || v.ConfigFile != d.ID+".yaml" {
				return fmt.Errorf("%s: nvram is %q, %w, %w", dir, v.NVRAM, without, err)
			}
			for _, image := range v.Images {
				shared[image]++
			}
			longest, states = max(longest, len(v.Images)), states+len(v.StateFiles)
		}
		if _, err := os.Stat(filepath.Join(c.base, "vm_dir", d.ID, fmt.Sprint(len(d.Versions)))); err == nil {
			return fmt.Errorf("template %s has a directory beyond its %d versions", d.Name, len(d.Versions))
		}
	}
	most := 0
	for _, n := range shared {
		most = max(most, n)
	}
	if longest < 2 || states == 0 || most < 4 { // saves make chains on the first version, and states
		return fmt.Errorf(
			"the longest chain has %d layers, an image is in at most %d versions, and there are %d states", longest,
			most, states)
	}
	return nil
}

// layerList compares a list of layer files, one name a line, with the names that the registry
// returns, and looks for the files in the directory that all templates share.
func layerList(base, file, dir string, names []string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var want strings.Builder
	for _, name := range names {
		want.WriteString(name + "\n")
		if _, err := os.Stat(filepath.Join(base, dir, name)); err != nil || !strings.HasSuffix(name, ".ank") {
			return fmt.Errorf("%s: %q: %w", file, name, err)
		}
	}
	if string(raw) != want.String() {
		return fmt.Errorf("%s is %q, and the registry says %v", file, raw, names)
	}
	return nil
}

// lastPull pulls once, and starts from the cache without a pull.
func lastPull(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["up"]
	registry := c.callerOf(c.proxies[1])
	times := func() (d api.TemplateDetail, err error) {
		return d, registry.Send(ctx, "GET", fmt.Sprint("/registry/v2/vm?id=", c.vars["template_plain"]), nil, &d)
	}
	before, err := times()
	if err != nil {
		return err
	}
	var look api.PullManifest
	if err := registry.Send(ctx, "GET",
		fmt.Sprint("/registry/v2/pull?look=true&version=1&id=", c.vars["template_plain"]), nil, &look); err != nil {
		return err
	}
	after, err := times()
	if err != nil || after.Versions[1].LastPull != before.Versions[1].LastPull || after.LastPush != before.LastPush {
		return fmt.Errorf("a look changed times: %v, %v, %w", before, after, err)
	}
	time.Sleep(1100 * time.Millisecond) // times are whole seconds
	if err := registry.Send(ctx, "GET", fmt.Sprint("/registry/v2/pull?version=1&id=", c.vars["template_plain"]), nil,
		&look); err != nil {
		return err
	}
	pulled, err := times()
	if err != nil || pulled.Versions[1].LastPull <= after.Versions[1].LastPull ||
		pulled.LastPull <= after.LastPull && after.LastPull != 0 || pulled.LastPush != after.LastPush {
		return fmt.Errorf("a pull changed times from %v to %v, %w", after.Versions[1], pulled.Versions[1], err)
	}
	if !slices.IsSortedFunc(pulled.Versions, func(a, b api.TemplateVersion) int { return a.Number - b.Number }) {
		return fmt.Errorf("versions are out of order: %v", pulled.Versions)
	}
	return nil
}

// registryAway kills the registry in the middle of a push and starts it again.
func registryAway(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	v := vars{}
	push := map[string]any{
		"id": "$template", "tag": "cut", "config": map[string]any{},
		"files": []any{map[string]any{"name": "d", "kind": "disk", "size": 1 << 20}},
	}
	faults := p.playWith(ctx, sequence{Case: "a push that is cut", On: "split", Steps: []step{
		{Send: "POST /registry/v2/push", With: push, As: "json", Keep: map[string]string{"s": "session"}},
	}}, v)
	if len(faults) > 0 {
		return faulty(faults)
	}
	if err := c.services[0].Kill(); err != nil {
		return err
	}
	faults = p.play(ctx, sequence{Case: "without a registry", On: "split", Steps: []step{
		{Send: "GET /api/v1/registry/vm", Code: 503, Fail: "~registry"},
		{Send: "GET /api/v1/registry/disk", Code: 503, Fail: "~."},
		{Send: "GET /api/v1/status", OK: map[string]any{"registry_status": "FAIL"}, Within: 10 * time.Second},
		{Send: "GET /livez"},
	}})
	if err := c.services[0].Start(); err != nil {
		return err
	}
	if err := c.stage.access.ready(ctx, c.services[0], c.registry); err != nil {
		return err
	}
	faults = append(faults, p.playWith(ctx, sequence{Case: "with a registry again", On: "split", Steps: []step{
		{
			Send: "GET /api/v1/registry/vm", Within: 10 * time.Second, As: "json",
			OK: map[string]any{"name=base/id": "$template"},
		},
		{Send: "GET /registry/v2/vm?id=$template", OK: map[string]any{"versions": "!len 3", "versions/2/tag": "v3"}},
		{Send: "GET /registry/vm/info?id=$template", OK: map[string]any{"name": "base", "hard_drives": "!len 1"}},
		{Send: "GET /api/v1/status", OK: map[string]any{"registry_status": "Running"}, Within: 10 * time.Second},
	}}, v)...)
	return faulty(faults)
}

// faulty makes an error of faults.
func faulty(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(faults, "; "))
}

// brokenStorage puts a file where a running registry keeps the parts of pushes.
func brokenStorage(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	dir := filepath.Join(c.base, "upload_dir")
	if err := os.Rename(dir, dir+".away"); err != nil {
		return err
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		return err
	}
	push := map[string]any{
		"name": "broken", "tag": "t", "config": map[string]any{},
		"files": []any{map[string]any{"name": "d", "kind": "disk", "size": 1 << 20}},
	}
	faults := p.play(ctx, sequence{Case: "a broken storage", On: "split", Steps: []step{
		{
			Send: "POST /registry/v2/push", With: push, Code: 500, Fail: `~^Internal error \(request [0-9a-f]{16}\)$`,
			As: "json",
		},
		{Send: "GET /registry/v2/vm", As: "json"},
	}})
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		return err
	}
	return faulty(faults)
}

// controllerKilled kills the controller while instances run.
func controllerKilled(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	id, err := c.start(ctx, "node_work", "Started")
	if err != nil {
		return err
	}
	ended, err := c.start(ctx, "node_work", "Started")
	if err != nil {
		return err
	}
	if err := c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": ended}, nil); err != nil {
		return err
	}
	controller := c.services[1]
	if err := controller.Kill(); err != nil {
		return err
	}
	if err := controller.Start(); err != nil {
		return err
	}
	if err := c.stage.access.ready(ctx, controller, c.controller); err != nil {
		return err
	}
	if err := c.await(ctx, id, func(i api.Instance) bool {
		return i.InstanceState == "Started" &&
			i.Message == ""
	}); err != nil {
		return err
	}
	var nodes []api.Node
	if err := c.caller().Send(ctx, "GET", "/api/v1/node", nil, &nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.NodeID == c.vars["node_work"] && n.State != "Active" {
			return fmt.Errorf("node %s is %s after a restart of the controller", n.NodeName, n.State)
		}
	}
	if err := c.await(ctx, ended, gone); err != nil {
		return err
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil)
}
