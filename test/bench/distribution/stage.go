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

// stage is the cloud of a run, with its nodes.
type stage struct {
	*bench
	cloud    *rig.Cloud
	client   rig.Client
	nodes    []*node
	template string // the guest
}

// node is a machine that runs VMs.
type node struct {
	*netns.Machine
	*rig.Process
	dir string // its data
	id  string
}

// openStage starts the cloud and its first node, and pushes the guest. A returned stage must be closed, also after an
// error.
func openStage(ctx context.Context, b *bench) (*stage, error) {
	cloud, err := rig.NewCloudAt(ctx, b.Programs, b.disk, netns.HubAddress)
	if err != nil {
		return nil, err
	}
	s := &stage{bench: b, cloud: cloud, client: rig.NewClient(cloud.Controller)}
	if err := cloud.Start(); err != nil {
		return s, err
	}
	if err := cloud.Await(ctx); err != nil {
		return s, err
	}
	s.template, err = cloud.Push(ctx, "debian", "import", b.guest, "--format", "raw", "--name", "debian", "--cpu", "1",
		"--ram", "1G", "--port", "ssh")
	if err != nil {
		return s, err
	}
	b.Say("pushed the guest")
	return s, s.join(ctx, "a")
}

// join adds a node with a limited link, and waits until it is Active.
func (s *stage) join(ctx context.Context, name string) error {
	m, err := netns.Add(ctx, name, 10+len(s.nodes))
	if err != nil {
		return err
	}
	if err := m.Limit(ctx, fullRate); err != nil {
		return err
	}
	p, err := s.cloud.Join(ctx, rig.NodeOptions{
		Name: name, Capacity: 1, Driver: "qemu", Host: m.Address, Launcher: m.Launcher(),
		Args: []string{"--lazy-pull", "on"},
	})
	n := &node{Machine: m, Process: p, dir: filepath.Join(s.disk, name)}
	if p != nil {
		s.nodes = append(s.nodes, n)
	}
	if err != nil {
		return err
	}
	return s.await(ctx, rig.ReadyTime, glance, "node "+name, func() (bool, error) {
		all, err := s.listed(ctx)
		for _, one := range all {
			if one.NodeName == name && one.State == "Active" {
				n.id = one.NodeID
			}
		}
		return n.id != "", err
	})
}

func (s *stage) listed(ctx context.Context) (nodes []api.Node, err error) {
	return nodes, s.client.Send(ctx, http.MethodGet, "/api/v1/node", nil, &nodes)
}

// await polls until done returns true. It fails when a program has ended.
func (s *stage) await(ctx context.Context, limit, every time.Duration, what string, done func() (bool, error)) error {
	processes := []*rig.Process{s.cloud.Process}
	for _, n := range s.nodes {
		processes = append(processes, n.Process)
	}
	return runner.Wait{What: what, Limit: limit, Every: every, Processes: processes}.Await(ctx, done)
}

// version is a directory on a node: that of a version, without a suffix.
func (s *stage) version(ctx context.Context, n *node, template string) (string, error) {
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
	return filepath.Join(n.dir, "templates", info.Versions[0].ContentID), nil
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

// distribute has a node pull a template, and waits until it is there.
func (s *stage) distribute(ctx context.Context, n *node, template string) (time.Duration, error) {
	began := time.Now()
	body := map[string]any{"template_id": template, "node_ids": []string{n.id}}
	if err := s.client.Send(ctx, http.MethodPost, "/api/v1/registry/vm/distribute", body, nil); err != nil {
		return 0, err
	}
	version, err := s.version(ctx, n, template)
	if err != nil {
		return 0, err
	}
	err = s.await(ctx, pullLimit, look, "a pull", func() (bool, error) {
		_, err := os.Stat(version)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
	return time.Since(began), err
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
		left, err := rig.QEMUs(s.disk)
		return len(left) == 0, err
	})
}

// close ends what runs. It has a separate time limit, since the run may have been ended.
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
	left, err := rig.QEMUs(s.disk)
	errs = append(errs, err)
	for _, q := range left {
		_, err := q.Kill(s.disk)
		errs = append(errs, err, fmt.Errorf("the QEMU of instance %s had to be killed", q.UUID))
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
