package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// stage is a new cloud with its fleet.
type stage struct {
	dir      string
	cloud    *rig.Cloud
	fleet    *rig.Process // nil when no nodes are needed
	client   *loadgen.Client
	template string
}

// The maximum number of callers, and time limits.
const (
	callers   = 64
	joinLimit = 3 * time.Minute
	workLimit = time.Minute // until something that is measured has happened
	glance    = 250 * time.Millisecond
)

// openStage starts a part's cloud, puts a template with an empty disk into it and joins its nodes.
// A returned stage must be closed, also after an error.
func openStage(ctx context.Context, b *bench, name string, nodes int) (*stage, error) {
	dir := filepath.Join(b.Dir, name)
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	cloud, err := rig.NewCloud(ctx, b.Programs, dir)
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, cloud: cloud, client: loadgen.NewClient(cloud.Controller, callers+2)}
	// One caller makes all instances here, more waiting ones than the defaults allow one.
	cloud.Process.Set(map[string]string{"SVC_MAX_WAITING": strconv.Itoa(4 * records), "SVC_MAX_WAITING_SIZE": "1GB"})
	if err := cloud.Boot(ctx); err != nil {
		return s, err
	}
	if s.template, err = cloud.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1",
		"--ram", "256M"); err != nil {
		return s, err
	}
	if nodes == 0 {
		return s, nil
	}
	began := time.Now()
	if err := s.join(ctx, b, nodes); err != nil {
		return s, err
	}
	b.Say("%s: %d nodes joined and described themselves in %.1f s", name, nodes, time.Since(began).Seconds())
	return s, nil
}

// join starts the fleet and waits until every node can take instances.
func (s *stage) join(ctx context.Context, b *bench, nodes int) error {
	token, err := s.cloud.Token(ctx)
	if err != nil {
		return err
	}
	s.fleet = rig.NewProcess(s.dir, "fleet", b.Programs.Path("buildnode"), "sim", "--nodes", strconv.Itoa(nodes),
		"--controller", s.cloud.Controller, "--token", token, "--capacity", strconv.Itoa(slots), "--log-level", "warn")
	if err := s.fleet.Start(); err != nil {
		return err
	}
	return s.await(ctx, joinLimit, fmt.Sprintf("%d nodes", nodes), func() (bool, error) {
		var list []api.Node
		raw, err := s.client.Call(ctx, http.MethodGet, "/api/v1/node", nil)
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

// await polls until done returns true. It fails when a program has ended.
func (s *stage) await(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	return runner.Wait{What: what, Limit: limit, Every: glance, Processes: s.processes()}.Await(ctx, done)
}

func (s *stage) processes() []*rig.Process { return []*rig.Process{s.cloud.Process, s.fleet} }

// close ends the programs: the fleet first, so that no node is lost.
func (s *stage) close() error {
	s.client.Close()
	var errs []error
	if s.fleet != nil {
		errs = append(errs, s.fleet.End())
	}
	return errors.Join(append(errs, s.cloud.End())...)
}

// usage is what a process used over a time.
type usage struct {
	cpu    float64 // of one core
	memory float64 // MB, at its end
}

// usage measures the server over a time, at the end of which every program must still
// be there: without its nodes a server has nothing to do.
func (s *stage) usage(ctx context.Context, over time.Duration) (u usage, err error) {
	if u.cpu, err = runner.Share(ctx, over, s.cloud.PID()); err != nil {
		return u, err
	}
	bytes, err := rig.Memory(s.cloud.PID())
	u.memory = float64(bytes) / (1 << 20)
	return u, errors.Join(err, runner.Running(s.processes()...))
}

// costs are processor times of all parties: the server, the nodes and this client share the cores.
type costs struct{ server, nodes, client time.Duration }

// costs reads the processor times so far.
func (s *stage) costs() (c costs, err error) {
	for _, p := range []struct {
		pid int
		to  *time.Duration
	}{{s.cloud.PID(), &c.server}, {s.fleet.PID(), &c.nodes}, {os.Getpid(), &c.client}} {
		if *p.to, err = rig.ProcessorTime(p.pid); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c costs) less(before costs) costs {
	return costs{c.server - before.server, c.nodes - before.nodes, c.client - before.client}
}

func (c costs) String() string {
	return fmt.Sprintf("CPU of server %.2f s, nodes %.2f s, client %.2f s", c.server.Seconds(), c.nodes.Seconds(),
		c.client.Seconds())
}

// order returns the body of a create.
func (s *stage) order(count int) []byte {
	raw, err := json.Marshal(loadgen.CreateRequest{
		Template: s.template, Tag: "v1", Count: count, ExternalID: "http://ci.example/job/42",
	})
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return raw
}

// create creates instances and returns their IDs.
func (s *stage) create(ctx context.Context, count int) (ids []string, err error) {
	return createWith(ctx, s.client, s.order(count))
}

func createWith(ctx context.Context, c *loadgen.Client, body []byte) (ids []string, err error) {
	raw, err := c.Call(ctx, http.MethodPost, loadgen.InstancesPath, body)
	if err != nil {
		return nil, err
	}
	return ids, json.Unmarshal(raw, &ids)
}
