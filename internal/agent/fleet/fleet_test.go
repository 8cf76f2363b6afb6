package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// cloud is the minimal controller of a fleet: every node gets one instance at its first poll.
type cloud struct {
	t *testing.T

	mu       sync.Mutex
	joined   map[string]string // node ID -> name
	ordered  map[string]bool   // node ID -> whether it got its order
	phases   map[string]api.Phase
	cached   map[string]int // node ID -> instances in its last full inventory
	expelled bool

	update   *api.AgentUpdate  // requested from every node
	versions map[string]string // node ID -> version of its agent
	failed   map[string]string // node ID -> why its update failed
}

func serve(t *testing.T) (*cloud, string) {
	t.Helper()
	c := &cloud{
		t: t, joined: map[string]string{}, ordered: map[string]bool{}, phases: map[string]api.Phase{},
		cached: map[string]int{}, versions: map[string]string{}, failed: map[string]string{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.PathJoin, answer(c.join))
	mux.HandleFunc("POST "+api.PathPoll, answer(c.poll))
	mux.HandleFunc("POST "+api.PathReport, answer(c.report))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, server.URL
}

func answer[In, Out any](do func(context.Context, In) (Out, int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		out, status := do(r.Context(), in)
		if status != http.StatusOK {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, `{"status":"FAIL","message":"no"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Envelope[Out]{Status: api.StatusOK, Body: out})
	}
}

func (c *cloud) join(_ context.Context, in api.JoinRequest) (api.JoinAnswer, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.Token != "good" || in.Arch != "amd64" {
		return api.JoinAnswer{}, http.StatusUnauthorized
	}
	id := in.NodeID
	if id == "" {
		id = fmt.Sprintf("01890000-0000-7000-8000-%012d", len(c.joined))
	}
	c.joined[id] = in.Name
	return api.JoinAnswer{NodeID: id, Credential: "c-" + id, Registry: "http://registry"}, http.StatusOK
}

func (c *cloud) poll(ctx context.Context, in api.PollRequest) (api.PollAnswer, int) {
	c.mu.Lock()
	if c.expelled {
		c.mu.Unlock()
		return api.PollAnswer{}, http.StatusUnauthorized
	}
	if in.HasHeld {
		c.cached[in.NodeID] = len(in.Held)
	}
	if in.Info != nil {
		c.versions[in.NodeID] = in.Info.AgentVersion
	}
	if in.Update != nil && in.Update.Stage == api.UpdateFailed {
		c.failed[in.NodeID] = in.Update.Message
	}
	update := c.update
	if update != nil && c.versions[in.NodeID] == update.Package.Version {
		update = nil
	}
	first := !c.ordered[in.NodeID]
	c.ordered[in.NodeID] = true
	c.mu.Unlock()
	if !first {
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		return api.PollAnswer{Update: update}, http.StatusOK
	}
	return api.PollAnswer{Orders: []api.Order{{
		Kind: api.OrderStart, InstanceID: in.NodeID, Claim: "1",
		Start: &api.StartOrder{TemplateID: "t", TemplateName: "x", Tag: "v1", ContentID: "c0ffee", VMName: "x"},
	}}}, http.StatusOK
}

func (c *cloud) report(_ context.Context, in api.Report) (api.ReportAnswer, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range in.Statuses {
		c.phases[s.InstanceID] = s.Phase
	}
	return api.ReportAnswer{}, http.StatusOK
}

func (c *cloud) await(what string, so func() bool) {
	c.t.Helper()
	for range 400 {
		c.mu.Lock()
		ok := so()
		c.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	c.t.Fatalf("waited in vain for %s: %v", what, c.phases)
}

func (c *cloud) running() int {
	n := 0
	for _, p := range c.phases {
		if p == api.PhaseRunning {
			n++
		}
	}
	return n
}

func options(url string) fleet.Options {
	return fleet.Options{
		NodeCount: 20, ControllerURL: url, JoinToken: "good", PullTime: sim.DurationRange{Min: 20 * time.Millisecond},
		Sim: sim.Options{Boot: sim.DurationRange{Min: 10 * time.Millisecond}}, Logger: slog.New(slog.DiscardHandler),
		Version: "test",
	}
}

// start runs a fleet; stop ends it and returns the result of Run.
func start(t *testing.T, o fleet.Options) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx, o) }()
	t.Cleanup(cancel)
	return func() error { cancel(); return <-done }
}

func TestEveryNodeWorks(t *testing.T) {
	c, url := serve(t)
	stop := start(t, options(url))
	c.await("20 running instances", func() bool { return c.running() == 20 })
	if len(c.joined) != 20 {
		t.Errorf("%d nodes joined", len(c.joined))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestNodesOutliveTheProcess: another fleet over the same directory has the same nodes with the
// same VMs.
func TestNodesOutliveTheProcess(t *testing.T) {
	c, url := serve(t)
	o := options(url)
	o.NodeCount, o.DataDir = 3, t.TempDir()
	stop := start(t, o)
	c.await("3 running instances", func() bool { return c.running() == 3 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	clear(c.phases)
	clear(c.cached)
	c.mu.Unlock()
	stop = start(t, o)
	c.await("3 instances told again", func() bool { return c.running() == 3 && len(c.cached) == 3 })
	if len(c.joined) != 3 {
		t.Errorf("%d nodes are known, want the same 3", len(c.joined))
	}
	for id, n := range c.cached {
		if n != 1 {
			t.Errorf("node %s holds %d instances", id, n)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestFleetThatIsExpelledEnds(t *testing.T) {
	c, url := serve(t)
	ended := make(chan error, 1)
	o := options(url)
	o.NodeCount = 2
	go func() { ended <- fleet.Run(context.Background(), o) }()
	c.await("2 running instances", func() bool { return c.running() == 2 })
	c.mu.Lock()
	c.expelled = true
	c.mu.Unlock()
	if err := <-ended; farm.CodeOf(err) != farm.CodeUnauthenticated {
		t.Errorf("got %v", err)
	}
}

func TestRefusals(t *testing.T) {
	_, url := serve(t)
	for name, edit := range map[string]func(*fleet.Options){
		"no node":   func(o *fleet.Options) { o.NodeCount = 0 },
		"too many":  func(o *fleet.Options) { o.NodeCount = fleet.MaxNodes + 1 },
		"real pull": func(o *fleet.Options) { o.RealPulls = true },
		"arch":      func(o *fleet.Options) { o.Sim.Arch = "sparc" },
		"token":     func(o *fleet.Options) { o.JoinToken = "bad" },
	} {
		o := options(url)
		edit(&o)
		if err := fleet.Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
