package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

// Time limits and polling intervals.
const (
	startLimit = 5 * time.Minute
	pullLimit  = 10 * time.Minute
	endLimit   = 2 * time.Minute
	look       = 20 * time.Millisecond
	glance     = 200 * time.Millisecond
)

// stage is a cloud of a run, with its nodes.
type stage struct {
	*bench
	dir      string // of everything that its programs write
	cloud    *rig.Cloud
	client   rig.Client
	nodes    []*node
	mounts   []string // below dir
	template string   // that is started or distributed
}

// node is a machine that runs VMs.
type node struct {
	*netns.Machine
	*rig.Process
	dir string // its data
	id  string
}

// openStage starts a cloud with settings below a directory of the run. A returned stage must be closed, also after an
// error.
func openStage(ctx context.Context, b *bench, name string, settings map[string]string) (*stage, error) {
	dir := filepath.Join(b.disk, name)
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	cloud, err := rig.NewCloudAt(ctx, b.Programs, dir, netns.HubAddress)
	if err != nil {
		return nil, err
	}
	cloud.Set(settings)
	s := &stage{bench: b, dir: dir, cloud: cloud, client: rig.NewClient(cloud.Controller)}
	if err := cloud.Start(); err != nil {
		return s, err
	}
	return s, cloud.Await(ctx)
}

// pushDebian pushes the guest of the starts.
func (s *stage) pushDebian(ctx context.Context) (err error) {
	s.template, err = s.cloud.Push(ctx, "debian", "import", s.guest, "--format", "raw", "--name", "debian",
		"--cpu", "1", "--ram", "1G", "--port", "ssh")
	if err == nil {
		s.Say("pushed the guest")
	}
	return err
}

// push pushes files as tag v1 of a template.
func (s *stage) push(ctx context.Context, name, config string, files ...transfer.PushFile) (string, error) {
	client, err := transfer.New(transfer.Options{BaseURL: s.cloud.Registry})
	if err != nil {
		return "", err
	}
	defer client.Close()
	pushed, err := client.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{Name: name, Tag: "v1", Config: []byte(config)}, Files: files,
	})
	if err != nil {
		return "", fmt.Errorf("push template %s: %w", name, err)
	}
	return pushed.ID, nil
}

// manifest returns what a node reads first of a template.
func (s *stage) manifest(ctx context.Context, template string) (m api.PullManifest, err error) {
	client, err := transfer.New(transfer.Options{BaseURL: s.cloud.Registry})
	if err != nil {
		return m, err
	}
	defer client.Close()
	return client.PeekManifest(ctx, transfer.VersionRef{ID: template, Tag: "v1"})
}

// firstHost is the last part of the first machine's address.
const firstHost = 10

// join adds a node with a limited link, and waits until it is Active.
func (s *stage) join(ctx context.Context, o rig.NodeOptions) error {
	m, err := netns.Add(ctx, o.Name, firstHost+s.machines)
	if err != nil {
		return err
	}
	s.machines++
	if err := m.Limit(ctx, fullRate); err != nil {
		return err
	}
	o.Host, o.Launcher = m.Address, m.Launcher()
	p, err := s.cloud.Join(ctx, o)
	n := &node{Machine: m, Process: p, dir: filepath.Join(s.dir, o.Name)}
	if p != nil {
		s.nodes = append(s.nodes, n)
	}
	if err != nil {
		return err
	}
	return s.await(ctx, rig.ReadyTime, glance, "node "+o.Name, func() (bool, error) {
		all, err := s.listed(ctx)
		for _, one := range all {
			if one.NodeName == o.Name && one.State == "Active" {
				n.id = one.NodeID
			}
		}
		return n.id != "", err
	})
}

// lazily are the options of a node that starts before a pull ends.
func lazily(name string) rig.NodeOptions {
	return rig.NodeOptions{Name: name, Capacity: 1, Driver: "qemu", Args: []string{"--lazy-pull", "on"}}
}

func (s *stage) listed(ctx context.Context) (nodes []api.Node, err error) {
	return nodes, s.client.Send(ctx, http.MethodGet, "/api/v1/node", nil, &nodes)
}

// await polls until done returns true. It fails when a program has ended.
func (s *stage) await(ctx context.Context, limit, every time.Duration, what string, done func() (bool, error)) error {
	return runner.Wait{What: what, Limit: limit, Every: every, Processes: s.processes()}.Await(ctx, done)
}

// processes returns the programs that must not end.
func (s *stage) processes() []*rig.Process {
	list := []*rig.Process{s.cloud.Process}
	for _, n := range s.nodes {
		list = append(list, n.Process)
	}
	return list
}

// version is a directory on a node: that of a version, without a suffix.
func (s *stage) version(ctx context.Context, n *node, template string) (string, error) {
	content, err := s.content(ctx, template)
	return n.version(content), err
}

func (n *node) version(content string) string { return filepath.Join(n.dir, "templates", content) }

// content returns the content ID of the only version of a template.
func (s *stage) content(ctx context.Context, template string) (string, error) {
	var info struct {
		Versions []struct {
			ContentID string `json:"content_id"`
		} `json:"versions"`
	}
	err := s.client.Send(ctx, http.MethodGet, "/api/v1/registry/vm?id="+template, nil, &info)
	if err == nil && (len(info.Versions) != 1 || info.Versions[0].ContentID == "") {
		err = fmt.Errorf("template %s has %d versions, one with a content ID was expected", template,
			len(info.Versions))
	}
	if err != nil {
		return "", err
	}
	return info.Versions[0].ContentID, nil
}

// discard removes a template from the nodes, also what a pull that ended early has left there.
func (s *stage) discard(ctx context.Context, template string) error {
	return s.await(ctx, endLimit, glance, "the removal of a template from the nodes", func() (bool, error) {
		left := 0
		for _, n := range s.nodes {
			version, err := s.version(ctx, n, template)
			if err != nil {
				return false, err
			}
			found, err := filepath.Glob(version + "*")
			if err != nil {
				return false, err
			}
			if slices.Equal(found, []string{version + ".partial"}) {
				if err := os.RemoveAll(found[0]); err != nil {
					return false, err
				}
				continue
			}
			left += len(found)
		}
		if left > 0 {
			body := map[string]string{"id": template}
			_ = s.client.Send(ctx, http.MethodDelete, "/api/v1/registry/vm/remove", body, nil) // asked again
		}
		return left == 0, nil
	})
}

// distribute has nodes pull a template, and waits until it is on all of them.
func (s *stage) distribute(ctx context.Context, template string, nodes ...*node) (time.Duration, error) {
	content, err := s.content(ctx, template)
	if err != nil {
		return 0, err
	}
	ids := make([]string, 0, len(nodes))
	for _, n := range nodes {
		ids = append(ids, n.id)
	}
	began := time.Now()
	body := map[string]any{"template_id": template, "node_ids": ids}
	if err := s.client.Send(ctx, http.MethodPost, "/api/v1/registry/vm/distribute", body, nil); err != nil {
		return 0, err
	}
	err = s.await(ctx, pullLimit, look, "a pull", func() (bool, error) {
		for _, n := range nodes {
			_, err := os.Stat(n.version(content))
			if err != nil {
				return false, ignoreMissing(err)
			}
		}
		return true, nil
	})
	return time.Since(began), err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// drain keeps new instances from a node, or ends that.
func (s *stage) drain(ctx context.Context, n *node, drained bool) error {
	body := map[string]any{"node_id": n.id, "drain_mode": drained}
	return s.client.Send(ctx, http.MethodPost, "/api/v1/node/config", body, nil)
}

// end terminates an instance and waits until it is gone.
func (s *stage) end(ctx context.Context, id string) error {
	return s.await(ctx, endLimit, glance, "the end of an instance", func() (bool, error) {
		err := s.client.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": id}, nil)
		if err != nil && !errors.Is(err, rig.Refusal("Not found")) {
			return false, err
		}
		left, err := rig.QEMUs(s.dir)
		return len(left) == 0, err
	})
}

// close ends what runs, and frees the space. It has a separate time limit, since the run may have been ended.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	var errs []error
	var list []api.InstanceItem
	if s.cloud.Running() {
		errs = append(errs, s.client.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &list))
	}
	for _, item := range list {
		errs = append(errs, s.end(ctx, item.InstanceID))
	}
	for _, n := range s.nodes {
		errs = append(errs, n.End())
		errs = append(errs, endFills(n))
	}
	errs = append(errs, s.cloud.End())
	left, err := rig.QEMUs(s.dir)
	errs = append(errs, err)
	for _, q := range left {
		_, err := q.Kill(s.dir)
		errs = append(errs, err, fmt.Errorf("the QEMU of instance %s had to be killed", q.UUID))
	}
	for _, dir := range s.mounts {
		_, err := rig.Output(ctx, "", "umount", "-l", dir)
		errs = append(errs, err)
	}
	if !s.Keep {
		errs = append(errs, os.RemoveAll(s.dir))
		_, err := rig.Output(ctx, "", "fstrim", s.disk)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// endFills kills the processes of a node that serve disks: the last instance has ended.
func endFills(n *node) error {
	pids, err := fills(n)
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	return err
}

// fills returns the processes of a node that serve disks.
func fills(n *node) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(raw), "\x00")
		if err == nil && slices.Contains(args, "fill") && strings.Contains(string(raw), n.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
