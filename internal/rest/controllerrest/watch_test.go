package controllerrest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// consoleConn is one line of a watch.
type consoleConn struct {
	Type       string            `json:"type"`
	Instance   *api.InstanceItem `json:"instance"`
	InstanceID string            `json:"instance_id"`
}

// String summarizes a line.
func (l consoleConn) String() string {
	if l.Instance != nil {
		return l.Type + " " + l.Instance.InstanceID + " " + l.Instance.VM.InstanceState + " " + l.Instance.VM.Name
	}
	return strings.TrimSpace(l.Type + " " + l.InstanceID)
}

func readLine(t *testing.T, from *bufio.Scanner) consoleConn {
	t.Helper()
	var l consoleConn
	if !from.Scan() {
		t.Fatalf("the watch ended: %v", from.Err())
	}
	if err := json.Unmarshal(from.Bytes(), &l); err != nil {
		t.Fatalf("%s: %v", from.Bytes(), err)
	}
	return l
}

// pipe is a connection whose other end reads at its own rate.
type pipe struct {
	*io.PipeWriter
	header   http.Header
	deadline *atomic.Pointer[time.Time] // of writes
}

func (p pipe) SetWriteDeadline(at time.Time) error {
	p.deadline.Store(&at)
	return nil
}

func (p pipe) Header() http.Header { return p.header }
func (pipe) WriteHeader(int)       {}
func (pipe) Flush()                {}

// bubble is a controller in a synctest bubble, without a network.
type bubble struct {
	*controller.Controller
	t       *testing.T
	handler http.Handler

	deadline *atomic.Pointer[time.Time] // of writes to the last watch
}

func inBubble(t *testing.T, test func(t *testing.T, c *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		tables := record.NewTables(controllerrest.InstanceJSON)
		st, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
		if err != nil {
			t.Fatal(err)
		}
		c, err := controller.New(ctx, st, tables,
			controller.Options{Registry: shelf{}, RegistryAddress: "http://registry"})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Run(ctx)
		}()
		test(t, &bubble{Controller: c, t: t, handler: controllerrest.Handler(controllerrest.Options{
			Controller: c, RequestTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
		})})
		cancel()
		<-done
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
}

// watch starts a watch; end disconnects and waits for the handler to return.
func (c *bubble) watch(query string) (lines *bufio.Scanner, end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	from, to := io.Pipe()
	done := make(chan struct{})
	deadline := new(atomic.Pointer[time.Time])
	c.deadline = deadline
	go func() {
		defer close(done)
		defer func() { _ = to.Close() }()
		c.handler.ServeHTTP(pipe{to, http.Header{}, deadline},
			httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/vm/watch"+query, nil))
	}()
	return bufio.NewScanner(from), func() {
		cancel()
		_ = from.Close()
		<-done
	}
}

func (c *bubble) start(name string) string {
	c.t.Helper()
	ids, err := c.Start(c.t.Context(), controller.StartRequest{TemplateID: templateID, Count: 1, Name: name})
	if err != nil {
		c.t.Fatal(err)
	}
	return ids[0]
}

func (c *bubble) rename(id, name string) {
	c.t.Helper()
	if err := c.Instances.Update(c.t.Context(), id, instances.Update{Name: &name}); err != nil {
		c.t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, c *bubble) {
		first := c.start("one")
		synctest.Wait() // its change must not come after it is present
		lines, end := c.watch("")
		defer end()
		next := func(wanted string) {
			t.Helper()
			want(t, "line", readLine(t, lines).String(), wanted)
		}
		next("set " + first + " Scheduling one")
		next("synced")
		second := c.start("two")
		next("set " + second + " Scheduling two")
		c.rename(first, "uno")
		next("set " + first + " Scheduling uno")
		if err := c.Instances.Terminate(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		next("set " + second + " Terminating two")
		next("gone " + second) // it never started
		began := time.Now()
		next("ping")
		next("ping")
		if took := time.Since(began); took < 15*time.Second || took > 31*time.Second {
			t.Errorf("two pings in %s", took)
		}

		late, endLate := c.watch("?present=false")
		want(t, "without the present ones", readLine(t, late).String(), "synced")
		c.rename(first, "eins")
		want(t, "then changes", readLine(t, late).String(), "set "+first+" Scheduling eins")
		if left := time.Until(*c.deadline.Load()); left <= 0 || left > 30*time.Second {
			t.Errorf("a write may take %s", left)
		}
		endLate()
		if at := c.deadline.Load(); !at.IsZero() {
			t.Errorf("the connection is given back with the deadline %s", at)
		}
		next("set " + first + " Scheduling eins")
		c.start("with a reason")
		l := readLine(t, lines)
		want(t, "reason for waiting", l.Instance.VM.Message, "there are no nodes")
	})
}

// TestSlowWatch lets a reader pause while much happens: it gets the latest of each.
func TestSlowWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, c *bubble) {
		ids := []string{c.start("a"), c.start("b"), c.start("c")}
		lines, end := c.watch("?present=false")
		defer end()
		want(t, "first", readLine(t, lines).String(), "synced")
		for n := range 300 {
			for _, id := range ids {
				c.rename(id, fmt.Sprint(n))
			}
			brief := c.start("brief")
			if err := c.Instances.Terminate(t.Context(), brief); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // the short-lived ones are removed during this time
		last, sets := map[string]string{}, 0
		for range 2000 {
			l := readLine(t, lines)
			if l.Type == "set" {
				sets++
				last[l.Instance.InstanceID] = l.Instance.VM.Name
			}
			if last[ids[0]] == "299" && last[ids[1]] == "299" && last[ids[2]] == "299" {
				break
			}
		}
		if sets == 0 || sets > 700 {
			t.Errorf("%d states of 1500 were kept for a reader that took none", sets)
		}
	})
}

// TestWatchOverConnections watches over a real connection, and has it end with the client.
func TestWatchOverConnections(t *testing.T) {
	c := newCloud(t)
	id := c.start("")
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/api/v1/vm/watch", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "type", resp.Header.Get("Content-Type"), "application/x-ndjson")
		lines := bufio.NewScanner(resp.Body)
		want(t, "present", readLine(t, lines).Instance.InstanceID, id)
		want(t, "synced", readLine(t, lines).Type, "synced")
		_ = resp.Body.Close()
	}
	head, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, c.url+"/api/v1/vm/watch", nil)
	resp, err := http.DefaultClient.Do(head)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	want(t, "HEAD", resp.StatusCode, 200)
	want(t, "wrong parameter", c.call("GET", "/api/v1/vm/watch?present=maybe", ""),
		answer{code: 400, Status: "FAIL", Message: "present: must be true or false"})
}

// TestWatchPace: a caller with few watches gets every line immediately, and one with many gets all their lines at a
// bounded rate.
func TestWatchPace(t *testing.T) {
	inBubble(t, func(t *testing.T, c *bubble) {
		const watches = 100
		readers, ends := make([]*bufio.Scanner, watches), make([]func(), watches)
		for i := range watches {
			readers[i], ends[i] = c.watch("")
			if l := readLine(t, readers[i]); l.Type != "synced" {
				t.Fatalf("a watch begins with %s", l)
			}
		}
		one := controller.StartRequest{TemplateID: templateID, Count: 1}
		var took []time.Duration
		for range 2 {
			began := time.Now()
			if _, err := c.Start(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			for _, r := range readers {
				readLine(t, r)
			}
			took = append(took, time.Since(began))
		}
		if took[0] != 0 || took[1] < watches*time.Millisecond {
			t.Errorf("%d watches got a first change after %s and a second one after %s", watches, took[0], took[1])
		}
		for _, end := range ends {
			end()
		}
	})
}
