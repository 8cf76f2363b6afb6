package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// cloud is a controller whose instances are Started at the second poll.
type cloud struct {
	t    *testing.T
	fail string // state instead of Started
	lose int    // the response of one in this many creates is lost; 0: none
	own  *api.InstanceItem

	mu      sync.Mutex // guards the fields below
	creates int
	types   map[string]bool // Content-Types of creates
	bodies  []string        // of creates
	looks   map[string]int
	ends    map[string]int
	lists   int
	alive   map[string]api.InstanceItem
}

func serve(t *testing.T, c *cloud) *Client {
	t.Helper()
	c.t, c.types, c.looks, c.ends, c.alive = t, map[string]bool{}, map[string]int{}, map[string]int{},
		map[string]api.InstanceItem{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client := NewClient(server.URL, 8)
	t.Cleanup(client.Close)
	return client
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, _ := io.ReadAll(r.Body)
	var body any
	switch id := r.URL.Query().Get("id"); {
	case r.Method == http.MethodPost:
		if c.creates++; c.lose > 0 && c.creates%c.lose == 0 {
			c.create(r, raw)
			panic(http.ErrAbortHandler)
		}
		body = []string{c.create(r, raw)}
	case r.Method == http.MethodDelete:
		var in struct{ ID string }
		if err := json.Unmarshal(raw, &in); err != nil || in.ID == "" {
			c.t.Errorf("a termination has the body %q", raw)
		}
		c.ends[in.ID]++
		delete(c.alive, in.ID)
	case id != "":
		item, ok := c.look(id)
		if !ok {
			_, _ = io.WriteString(w, `{"status":"FAIL","message":"Not found"}`)
			return
		}
		body = item.VM
	default:
		c.lists++
		list := []api.InstanceItem{}
		for id := range c.alive {
			item, _ := c.look(id)
			list = append(list, item)
		}
		if c.own != nil {
			list = append(list, *c.own)
		}
		body = list
	}
	_ = json.NewEncoder(w).Encode(api.Envelope[any]{Status: api.StatusOK, Body: body})
}

func (c *cloud) create(r *http.Request, raw []byte) string {
	var in CreateRequest
	if err := json.Unmarshal(raw, &in); err != nil {
		c.t.Errorf("a create has the body %q", raw)
	}
	c.types[r.Header.Get("Content-Type")] = true
	c.bodies = append(c.bodies, string(raw))
	id := fmt.Sprintf("i%d", c.creates)
	c.alive[id] = api.InstanceItem{
		InstanceID: id, ExternalID: &in.ExternalID, VM: api.Instance{InstanceState: "Scheduling"},
	}
	return id
}

func (c *cloud) look(id string) (api.InstanceItem, bool) {
	item, ok := c.alive[id]
	if c.looks[id]++; ok && c.looks[id] > 1 {
		item.VM.InstanceState = "Started"
		if c.fail != "" {
			item.VM.InstanceState = c.fail
		}
		c.alive[id] = item
	}
	return item, ok
}

// quick returns a profile that polls often.
func quick(t *testing.T, name string) Profile {
	t.Helper()
	p, err := FindProfile(name)
	if err != nil {
		t.Fatal(err)
	}
	p.PollInterval = 5 * time.Millisecond
	return p
}

func options(p Profile) Options {
	return Options{
		Template: "t1", Tag: "v1", Profile: p, Rate: 100, Callers: 8, HoldTime: 20 * time.Millisecond,
		Duration: 300 * time.Millisecond, Seed: 1, RunID: "r1",
	}
}

// TestProfiles: each profile behaves as described, and leaves no instance behind.
func TestProfiles(t *testing.T) {
	for _, name := range ProfileNames() {
		t.Run(name, func(t *testing.T) {
			stranger := "http://" + name + ".load/r2/1"
			c := &cloud{own: &api.InstanceItem{InstanceID: "other", ExternalID: &stranger}}
			client := serve(t, c)
			p := quick(t, name)
			o := options(p)
			o.Duration = time.Second // a list may take 100 ms on a busy machine
			r, err := Run(t.Context(), client, o)
			if err != nil || r.Remaining != 0 || len(c.alive) != 0 || c.ends["other"] > 0 {
				t.Fatalf("%+v, %v; %d instances are left, the stranger was ended %d times", r, err, len(c.alive),
					c.ends["other"])
			}
			if r.Offered < 20 || r.Created != int64(c.creates) || r.Started == 0 || r.Terminated != r.Created ||
				len(r.Errors) > 0 {
				t.Errorf("%+v of %d creates", r, c.creates)
			}
			if s := r.Times[OpStart]; s.Count != r.Started || s.P50 <= 0 || s.P50 > s.P99 || s.P99 > s.Max {
				t.Errorf("times of starts are %+v", s)
			}
			if len(c.types) != 1 || !c.types[p.ContentType] {
				t.Errorf("the types of bodies are %v", c.types)
			}
			if got := strings.HasSuffix(c.bodies[0], "\n"); got != p.TrailingNewline {
				t.Errorf("a body is %q", c.bodies[0])
			}
			if got := strings.Contains(c.bodies[0], `"script_monitoring":true`); got != p.UsesScript {
				t.Errorf("a body is %q", c.bodies[0])
			}
			if listed := c.lists > 2; listed != p.FindsByList {
				t.Errorf("it listed %d times", c.lists)
			}
			if p.TerminateCalls == 2 && c.ends["i1"] < 2 {
				t.Errorf("the first instance was ended %d times", c.ends["i1"])
			}
		})
	}
}

// TestErrorIsLeft: a plugin that makes no call after Error leaves the instance, and the run
// terminates it.
func TestErrorIsLeft(t *testing.T) {
	c := &cloud{fail: "Error"}
	o := options(quick(t, "packer"))
	o.Duration = time.Second // a create may take 100 ms on a busy machine
	r, err := Run(t.Context(), serve(t, c), o)
	if err != nil || r.Failed == 0 || r.Started != 0 || r.Remaining != 0 || len(c.alive) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := c.looks["i1"]; n > 3 { // two of the job, one or two of the lists at the end
		t.Errorf("the first instance was looked at %d times", n)
	}
}

// TestLostAnswers: instances whose IDs were lost are found and terminated.
func TestLostAnswers(t *testing.T) {
	c := &cloud{lose: 3}
	r, err := Run(t.Context(), serve(t, c), options(quick(t, "gitlab")))
	if err != nil || r.Remaining != 0 || len(c.alive) != 0 {
		t.Errorf("%+v, %v; %d are left", r, err, len(c.alive))
	}
	if r.Created >= int64(c.creates) || r.Errors["create: connection"] == 0 {
		t.Errorf("of %d creates %d were acknowledged: %v", c.creates, r.Created, r.Errors)
	}
}

// TestBrokenOff: an interrupted run terminates what it started, and does not wait for an instance
// that never starts.
func TestBrokenOff(t *testing.T) {
	for name, fail := range map[string]string{"at work": "", "never started": "Scheduling"} {
		c := &cloud{fail: fail}
		client := serve(t, c)
		o := options(quick(t, "github"))
		o.HoldTime, o.Rate, o.Duration = time.Hour, 0, time.Hour
		if fail != "" {
			o.Duration = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		r, err := Run(ctx, client, o)
		cancel()
		if err != nil || r.Created != 8 || r.Terminated != 8 || len(c.alive) != 0 || len(r.Errors) > 0 {
			t.Errorf("%s: %+v, %v; %d are left", name, r, err, len(c.alive))
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	p := quick(t, "jenkins")
	for name, edit := range map[string]func(*Options){
		"template required": func(o *Options) { o.Template = "" },
		"no callers":        func(o *Options) { o.Callers = 0 },
		"rate":              func(o *Options) { o.Rate = -1 },
		"duration":          func(o *Options) { o.Duration = 0 },
		"profile":           func(o *Options) { o.Profile = Profile{} },
	} {
		o := options(p)
		edit(&o)
		if _, err := Run(t.Context(), NewClient("http://127.0.0.1:1", 1), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := FindProfile("travis"); err == nil || !strings.Contains(err.Error(), "jenkins, teamcity") {
		t.Errorf("an unknown profile gives %v", err)
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	h.add(24 * time.Hour)
	h.add(0)
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := h.quantile(q); got < want*95/100 || got > want*105/100 {
			t.Errorf("quantile %v is %s, want about %s", q, got, want)
		}
	}
	if got := h.quantile(0); got > 2*time.Microsecond {
		t.Errorf("the least is %s", got)
	}
	if x := h.percentiles(); x.Count != 1002 || x.Max != 24*3600*1000 {
		t.Errorf("times are %+v", x)
	}
}

// TestKindsAreBounded: a controller cannot make the report grow without limit.
func TestKindsAreBounded(t *testing.T) {
	tally := newResults("x")
	for i := range 1000 {
		tally.record(OpGet, 0, &APIError{200, fmt.Sprint(i, strings.Repeat("x", 1000))})
	}
	r := tally.snapshot(time.Second)
	if len(r.Errors) != maxErrorKinds+1 || r.Errors["other"] != 1000-maxErrorKinds {
		t.Errorf("%d kinds, %d others", len(r.Errors), r.Errors["other"])
	}
	for kind := range r.Errors {
		if len(kind) > 120 {
			t.Errorf("a kind is %q", kind)
		}
	}
}

func TestWatch(t *testing.T) {
	lines := []string{
		`{"type":"set","instance":{"instance_id":"a","external_id":null,"name":null,"vm":{"instance_state":"Started"}}}`,
		`{"type":"synced"}`, `{"type":"gone","instance_id":"a"}`, `{"type":"ping"}`,
	}
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked = r.URL.String(); r.URL.RawQuery != "" {
			http.Error(w, "no such route", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	}))
	defer server.Close()
	var kinds []string
	client := NewClient(server.URL, 1)
	err := client.Watch(t.Context(), IncludeExisting, func(c WatchChange) error {
		kinds = append(kinds, c.Type+c.InstanceID+c.Instance.InstanceID+c.Instance.VM.InstanceState)
		return nil
	})
	if err == nil || !slices.Equal(kinds, []string{"setaStarted", "synced", "gonea", "ping"}) ||
		asked != "/api/v1/vm/watch" {
		t.Errorf("%q, %v, asked for %s", kinds, err, asked)
	}
	err = client.Watch(t.Context(), ExcludeExisting, func(WatchChange) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "no such route") || asked != "/api/v1/vm/watch?present=false" {
		t.Errorf("%v, asked for %s", err, asked)
	}
}
