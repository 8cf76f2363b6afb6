package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// drill is a cloud with real guests whose programs are all replaced while its clients work.
type drill struct {
	*cloud
	saves int            // how many were requested
	pids  map[string]int // QEMU processes of the guests that are kept, by the names of their instances
	jobs  []job
}

// job is a save or a distribution that was requested before programs were replaced.
type job struct {
	what, route string
	done        func(raw json.RawMessage) error
}

// The drill's cases wait for guests without hardware acceleration.
const (
	guestTime = 3 * time.Minute
	jobTime   = 5 * time.Minute

	blobBytes = 1 << 30 // of the template that is distributed
	maxOutage = 5 * time.Second
)

// drillCases upgrade and downgrade a cloud with running guests, a save and a distribution.
func drillCases(b *builds, dir string) group {
	d := &drill{cloud: newCloud(b, dir, arrangement{name: "drill", split: true}), pids: map[string]int{}}
	return group{name: d.name, close: d.close, steps: []step{
		{name: "old cloud with QEMU guests", play: d.fillWithGuests},
		{name: "upgrade of all programs during a save and a distribution", play: d.upgradeAll},
		{name: "guests, save and distribution after the upgrade", play: d.verify},
		{name: "downgrade of all programs during a save and a distribution", play: d.downgradeAll},
		{name: "guests, save and distribution after the downgrade", play: d.verify},
		{name: "no VM is left", play: d.empty},
	}}
}

// fillWithGuests makes a cloud of the old programs with a node that runs real guests.
func (d *drill) fillWithGuests(ctx context.Context) (string, error) {
	if err := d.prepare(ctx); err != nil {
		return "", err
	}
	disk, err := rig.Guest(ctx, d.b.new.root, d.dir)
	if err != nil {
		return "", err
	}
	for _, name := range d.serviceNames() {
		if err := d.start(ctx, d.b.old, name); err != nil {
			return "", err
		}
	}
	blob := d.file("blob.raw")
	if err := writeRandom(blob, blobBytes); err != nil {
		return "", err
	}
	for name, from := range map[string]string{"guest": disk, "blob": blob} {
		if err := d.push(ctx, name, from); err != nil {
			return "", err
		}
	}
	if err := d.joinQEMU(ctx); err != nil {
		return "", err
	}
	for _, name := range []string{"kept-1", "kept-2", "saved-1", "saved-2"} {
		if err := d.startGuest(ctx, name); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d guests run", len(d.pids)), nil
}

func writeRandom(path string, n int) error {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return os.WriteFile(path, data, 0o600)
}

// push makes a template of a disk with the old programs.
func (d *drill) push(ctx context.Context, name, disk string) error {
	program, home := d.b.old.path("buildnode"), []string{"--data-dir", d.file("author-" + name)}
	run := func(args ...string) (string, error) { return d.command(ctx, program, append(args, home...)...) }
	if _, err := run("vm", "import", disk, "--name", name, "--cpu", "1", "--ram", "256M"); err != nil {
		return err
	}
	_, err := run("registry", "--remote", "http://"+d.cloud.registry, "--token-file", d.ownToken(), "push", name,
		"--tag", "v1")
	if err != nil {
		return err
	}
	raw, err := run("vm", "list", "--output", "json")
	if err != nil {
		return err
	}
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list) != 1 {
		return errors.Join(err, fmt.Errorf("the local templates are %s", raw))
	}
	d.templates[name] = list[0].ID
	return nil
}

// joinQEMU joins a node with the old agent.
func (d *drill) joinQEMU(ctx context.Context) error {
	if err := d.join(ctx, "--capacity", "8"); err != nil {
		return err
	}
	if err := d.runAgent(d.b.old); err != nil {
		return err
	}
	return until(ctx, func() error {
		var list []struct {
			ID    string `json:"node_id"`
			State string `json:"state"`
		}
		err := d.call(ctx, request{http.MethodGet, "http://" + d.controller + "/api/v1/node", nil, nil}, &list)
		if err == nil && (len(list) != 1 || list[0].State != "Active") {
			err = fmt.Errorf("the nodes are %+v; the agent said: %s", list, d.node.Tail())
		}
		if err == nil {
			d.nodes[agentName] = list[0].ID
		}
		return err
	})
}

// runAgent starts the agent of some programs on the node's directory.
func (d *drill) runAgent(p programs) error {
	d.node = rig.NewProcess(d.dir, agentName+"-"+p.commit, p.path("buildnode"), "run", "--driver", "qemu",
		"--data-dir", d.file(agentName), "--log-level", "debug")
	return d.node.Start()
}

// startGuest starts an instance and remembers the process of its VM.
func (d *drill) startGuest(ctx context.Context, name string) error {
	id, err := d.begin(ctx, map[string]any{"vmid": d.templates["guest"], "name": name}, nil)
	if err != nil {
		return err
	}
	d.instances[name] = id
	if err := d.started(ctx, id); err != nil {
		return fmt.Errorf("%s: %w; the agent said: %s", name, err, d.node.Tail())
	}
	all, err := d.processes()
	d.pids[name] = all[id]
	if err == nil && d.pids[name] == 0 {
		err = fmt.Errorf("%s has no QEMU process", name)
	}
	return err
}

// started waits until an instance is Started.
func (d *drill) started(ctx context.Context, id string) error {
	return within(ctx, guestTime, func() error {
		i, err := d.instance(ctx, id)
		if err == nil && i.State != "Started" {
			err = fmt.Errorf("instance %s is %s (%s)", id, i.State, i.Message)
		}
		return err
	})
}

// processes returns the PIDs of the node's VMs by their instances.
func (d *drill) processes() (map[string]int, error) {
	list, err := rig.QEMUs(d.file(agentName))
	pids := map[string]int{}
	for _, q := range list {
		pids[q.UUID] = q.PID
	}
	return pids, err
}

// upgradeAll replaces the old programs by the new ones, in the order of docs/upgrade.md.
func (d *drill) upgradeAll(ctx context.Context) (string, error) {
	return d.replaceAll(ctx, d.b.new, "saved-1", []string{"controller", "registry", agentName})
}

// downgradeAll replaces the new programs by the old ones, in the opposite order.
func (d *drill) downgradeAll(ctx context.Context) (string, error) {
	return d.replaceAll(ctx, d.b.old, "saved-2", []string{agentName, "registry", "controller"})
}

// replaceAll begins a save and a distribution and replaces all programs, one after the other, while clients ask.
func (d *drill) replaceAll(ctx context.Context, p programs, saved string, order []string) (string, error) {
	if err := d.beginJobs(ctx, saved); err != nil {
		return "", err
	}
	watch := watchOutages(ctx, d.cloud)
	defer watch.cancel()
	var open []string
	for _, name := range order {
		if name == agentName {
			open = d.openJobs(ctx)
		}
		if err := d.replaceOne(ctx, p, name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := d.active(ctx, d.nodes[agentName]); err != nil {
		return "", fmt.Errorf("%w; the agent said: %s", err, d.node.Tail())
	}
	line, err := watch.end()
	if len(open) == 0 {
		err = errors.Join(err, errors.New("both jobs were done before the agent was replaced: raise blobBytes"))
	}
	return fmt.Sprintf("open when the agent ended: %s; %s", strings.Join(open, " and "), line), err
}

// openJobs returns the jobs that are not done.
func (d *drill) openJobs(ctx context.Context) (open []string) {
	for _, j := range d.jobs {
		if raw, err := d.jobState(ctx, j); err == nil && j.done(raw) != nil {
			open = append(open, j.what)
		}
	}
	return open
}

func (d *drill) jobState(ctx context.Context, j job) (raw json.RawMessage, err error) {
	err = d.call(ctx, request{http.MethodGet, "http://" + d.controller + j.route, nil, nil}, &raw)
	return raw, err
}

// isDone returns an error unless a job is done.
func (d *drill) isDone(ctx context.Context, j job) error {
	raw, err := d.jobState(ctx, j)
	if err != nil {
		return err
	}
	return j.done(raw)
}

func (d *drill) replaceOne(ctx context.Context, p programs, name string) error {
	if name == agentName {
		if err := d.node.End(); err != nil {
			return err
		}
		return d.runAgent(p)
	}
	if err := d.stop(name); err != nil {
		return err
	}
	return d.start(ctx, p, name)
}

// beginJobs requests a save with the memory of the guest and a distribution.
func (d *drill) beginJobs(ctx context.Context, saved string) error {
	d.saves++
	tag := fmt.Sprintf("saved%d", d.saves)
	var save struct {
		RequestID string `json:"request_id"`
	}
	err := d.call(ctx, request{http.MethodPost, "http://" + d.controller + "/api/v1/image", map[string]any{
		"id": d.instances[saved], "target_vm_id": d.templates["guest"], "tag": tag, "suspend": true,
	}, nil}, &save)
	if err != nil {
		return err
	}
	d.jobs = []job{{"save as " + tag, "/api/v1/image?id=" + save.RequestID, isSaved}}
	if err := d.evict(ctx); err != nil {
		return err
	}
	var distribution struct {
		RequestID string `json:"request_id"`
	}
	err = d.call(ctx, request{
		http.MethodPost, "http://" + d.controller + "/api/v1/registry/vm/distribute",
		map[string]any{"template_id": d.templates["blob"], "tag": "v1"},
		nil,
	}, &distribution)
	d.jobs = append(d.jobs, job{
		"distribution", "/api/v1/registry/vm/distribute?id=" + distribution.RequestID, isDistributed,
	})
	delete(d.pids, saved)
	return err
}

// evict removes the template that is distributed from the node's cache.
func (d *drill) evict(ctx context.Context) error {
	if d.saves == 1 {
		return nil // it was never there
	}
	_, err := d.yard(ctx, d.b.new, "template", "evict", "blob", "--wait", "--timeout", "40s", "--yes")
	return err
}

// isSaved returns an error unless a save request is done.
func isSaved(raw json.RawMessage) error {
	var s struct {
		Status string
		Error  json.RawMessage
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s.Status != "done" {
		return fmt.Errorf("it is %s: %s", s.Status, s.Error)
	}
	return nil
}

// isDistributed returns an error unless all nodes have the version.
func isDistributed(raw json.RawMessage) error {
	var s struct {
		Nodes map[string]struct {
			Status   bool
			Error    string
			Progress float64
		} `json:"distribute_status"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if !n.Status {
			return fmt.Errorf("it is at %.2f %s", n.Progress, n.Error)
		}
	}
	if len(s.Nodes) == 0 {
		return errors.New("it has no nodes")
	}
	return nil
}

// verify waits for the jobs, compares the processes of the guests, and starts what was saved.
func (d *drill) verify(ctx context.Context) (string, error) {
	var done []string
	for _, j := range d.jobs {
		if err := within(ctx, jobTime, func() error { return d.isDone(ctx, j) }); err != nil {
			return "", fmt.Errorf("%s: %w; the agent said: %s", j.what, err, d.node.Tail())
		}
		done = append(done, j.what)
	}
	all, err := d.processes()
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(d.pids)) {
		if err := d.started(ctx, d.instances[name]); err != nil {
			return "", err
		}
		if pid := all[d.instances[name]]; pid != d.pids[name] {
			return "", fmt.Errorf("%s has process %d, before %d", name, pid, d.pids[name])
		}
	}
	id, err := d.begin(ctx, map[string]any{
		"vmid": d.templates["guest"], "tag": fmt.Sprintf("saved%d", d.saves),
	}, nil)
	if err == nil {
		err = d.started(ctx, id)
	}
	if err != nil {
		return "", fmt.Errorf("start of what was saved: %w; the agent said: %s", err, d.node.Tail())
	}
	return fmt.Sprintf("%s done, %d guests have the same processes, the saved one resumes in another instance",
		strings.Join(done, " and "), len(d.pids)), d.terminate(ctx, id)
}

// empty terminates everything.
func (d *drill) empty(ctx context.Context) (string, error) {
	for name := range d.pids {
		if err := d.terminate(ctx, d.instances[name]); err != nil {
			return "", err
		}
	}
	err := until(ctx, func() error {
		all, err := d.processes()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("QEMU processes are left: %v", all)
		}
		return err
	})
	return "all instances are in the history, no QEMU process is left", err
}

// close ends VMs that a failed case has left, and everything else.
func (d *drill) close() error {
	err := d.cloud.close()
	list, failure := rig.QEMUs(d.file(agentName))
	for _, q := range list {
		_, killing := q.Kill(d.file(agentName))
		failure = errors.Join(failure, killing)
	}
	return errors.Join(err, failure)
}
