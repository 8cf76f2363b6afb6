package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

const replicas = 3

// controller is one replica.
type controller struct {
	*rig.Process
	address string
	client  *loadgen.Client
}

// replicated is the cloud that is measured.
type replicated struct {
	dir       string
	embedded  *rig.Cloud // for comparison; it also has the registry
	members   []*rig.Process
	endpoints []string // of members, in their order
	control   []*controller
	fleet     *rig.Process
	template  string
}

// openCloud starts everything but nodes. A returned cloud must be closed, also after an error.
func (b *bench) openCloud(ctx context.Context) (c *replicated, err error) {
	c = &replicated{dir: filepath.Join(b.Dir, "cloud")}
	if err := rig.MakeDir(c.dir); err != nil {
		return c, err
	}
	if c.embedded, err = rig.NewCloud(ctx, b.Programs, c.dir); err != nil {
		return c, err
	}
	c.embedded.Set(limits)
	if err := c.embedded.Boot(ctx); err != nil {
		return c, err
	}
	c.template, err = c.embedded.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1",
		"--ram", "256M")
	if err != nil {
		return c, err
	}
	if err := c.startMembers(ctx, b.etcd); err != nil {
		return c, err
	}
	for i := range replicas {
		if err := c.startController(ctx, b, i); err != nil {
			return c, err
		}
	}
	return c, nil
}

// limits let one caller make all instances.
var limits = map[string]string{"SVC_MAX_WAITING": "1000000", "SVC_MAX_WAITING_SIZE": "4GB"}

func (c *replicated) startMembers(ctx context.Context, etcd string) error {
	var peers, cluster []string
	for i := range replicas {
		client, err := rig.FreeAddr(ctx)
		if err != nil {
			return err
		}
		peer, err := rig.FreeAddr(ctx)
		if err != nil {
			return err
		}
		c.endpoints, peers = append(c.endpoints, "http://"+client), append(peers, "http://"+peer)
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	for i := range replicas {
		name := fmt.Sprintf("m%d", i)
		p := rig.NewProcess(c.dir, name, etcd, "--name", name, "--data-dir", filepath.Join(c.dir, name+"-data"),
			"--listen-client-urls", c.endpoints[i], "--advertise-client-urls", c.endpoints[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--log-level", "warn",
			"--quota-backend-bytes", "8589934592")
		c.members = append(c.members, p)
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *replicated) startController(ctx context.Context, b *bench, i int) error {
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("control%d", i)
	p := rig.NewProcess(c.dir, name, b.Programs.Path("buildyard"), "controller", "--listen-addr", address, "--data-dir",
		c.dataDir(i), "--registry", c.embedded.Registry, "--etcd-endpoints", strings.Join(c.endpoints, ","),
		"--instance-time-out", "1s", "--log-level", "warn")
	p.Set(limits)
	control := &controller{p, "http://" + address, loadgen.NewClient("http://"+address, callers+2)}
	c.control = append(c.control, control)
	if err := p.Start(); err != nil {
		return err
	}
	return rig.Ready(ctx, p, control.address)
}

func (c *replicated) dataDir(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("control%d-data", i))
}

// join starts the fleet, which is spread over the controllers that stay: the first is not one that a row kills last.
func (c *replicated) join(ctx context.Context, b *bench) error {
	token, err := rig.Output(ctx, "", b.Programs.Path("buildyard"), "node", "token", "--data-dir", c.dataDir(0))
	if err != nil {
		return err
	}
	c.fleet = rig.NewProcess(c.dir, "fleet", b.Programs.Path("buildnode"), "sim", "--nodes", strconv.Itoa(nodes),
		"--controller", c.control[0].address, "--token", token, "--capacity", strconv.Itoa(slots),
		"--log-level", "warn")
	if err := c.fleet.Start(); err != nil {
		return err
	}
	return runner.Wait{
		What: fmt.Sprintf("%d nodes", nodes), Limit: 3 * time.Minute, Every: 250 * time.Millisecond,
		Processes: []*rig.Process{c.fleet},
	}.Await(ctx, func() (bool, error) {
		var list []api.Node
		raw, err := c.control[0].client.Call(ctx, http.MethodGet, "/api/v1/node", nil)
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		ready := 0
		for _, n := range list {
			if n.State == "Active" && n.AnkaVersion.Product != "" {
				ready++
			}
		}
		return ready == nodes, err
	})
}

// leadingMember finds the member that leads the cluster.
func (c *replicated) leadingMember(ctx context.Context) (int, error) {
	for i, endpoint := range c.endpoints {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
		if err != nil {
			return 0, err
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		status, err := client.Status(limited, endpoint)
		cancel()
		_ = client.Close()
		if err == nil && status.Leader == status.Header.GetMemberId() {
			return i, nil
		}
	}
	return 0, errors.New("no etcd member is the leader")
}

// close ends the programs, the nodes first.
func (c *replicated) close() error {
	var errs []error
	if c.fleet != nil {
		errs = append(errs, c.fleet.End())
	}
	for _, control := range c.control {
		control.client.Close()
		errs = append(errs, control.End())
	}
	for _, m := range c.members {
		errs = append(errs, m.End())
	}
	if c.embedded != nil {
		errs = append(errs, c.embedded.End())
	}
	return errors.Join(errs...)
}
