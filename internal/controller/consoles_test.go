package controller

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

// wire is the remote end of a connection: messages that it sends are returned by the connection's
// Read, and it receives what is written.
type wire struct {
	says  chan []byte
	heard chan []byte // its buffer is small: when it is full the peer is slow
	deaf  atomic.Bool // it answers no pings

	once sync.Once
	over chan struct{}
	why  string               // the reason with which the controller ended it; set when over is closed
	left *console.ClosedError // it has left
}

func newWire() *wire {
	return &wire{says: make(chan []byte), heard: make(chan []byte, 2), over: make(chan struct{})}
}

func (w *wire) end(why string, left *console.ClosedError) {
	w.once.Do(func() {
		w.why, w.left = why, left
		close(w.over)
	})
}

func (w *wire) Read(ctx context.Context) ([]byte, error) {
	select {
	case m := <-w.says:
		return m, nil
	case <-w.over:
		if w.left != nil {
			return nil, *w.left
		}
		return nil, console.ClosedError{}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Write(ctx context.Context, m []byte) error {
	select {
	case <-w.over:
		return console.ClosedError{}
	default:
	}
	select {
	case w.heard <- m:
		return nil
	case <-w.over:
		return console.ClosedError{}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Ping(ctx context.Context) error {
	if !w.deaf.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (w *wire) End(why string) { w.end(why, nil) }

// looked is an instance that runs on a node with support for consoles.
type looked struct {
	*cloud
	a  *agent
	o  api.Order
	id string
}

func running(t *testing.T, c *cloud) *looked {
	t.Helper()
	a := c.join("n", 10)
	a.info.Abilities = []string{"console"}
	a.contact()
	id := c.mustStart(StartRequest{})[0]
	o := a.take(api.OrderStart)
	a.say(o, api.PhaseRunning)
	c.wantState(id, farm.Started)
	return &looked{c, a, o, id}
}

// open opens a console and serves it to a viewer.
func (l *looked) open(ctx context.Context) (viewer *wire, k *console.Session, closed <-chan struct{}) {
	l.t.Helper()
	k, err := l.Consoles.Open(ctx, l.id)
	if err != nil {
		l.t.Fatal(err)
	}
	viewer = newWire()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer k.Close()
		k.Serve(viewer)
	}()
	return viewer, k, done
}

// called returns the console request that the node receives.
func (l *looked) called() api.ConsoleRequest {
	l.t.Helper()
	answer, err := l.a.tryPoll(api.PollRequest{Held: l.a.held, HasHeld: true}, 0)
	if err != nil || len(answer.Consoles) != 1 {
		l.t.Fatalf("the node is called by %+v, %v", answer, err)
	}
	return answer.Consoles[0]
}

// join makes the node answer a console request.
func (l *looked) join(call api.ConsoleRequest) (node *wire) {
	l.t.Helper()
	k, err := l.Consoles.Take(l.a.id, call.Session)
	if err != nil {
		l.t.Fatal(err)
	}
	node = newWire()
	go k.Join(node)
	synctest.Wait()
	return node
}

func wantEnd(t *testing.T, w *wire, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.over:
		if !strings.Contains(w.why, want) {
			t.Errorf("it ended: %q, want %q", w.why, want)
		}
	default:
		t.Errorf("it has not ended; want %q", want)
	}
}

func TestConsoleCarriesBothWays(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		viewer, _, closed := l.open(t.Context())
		viewer.says <- []byte("before there is a node")
		node := l.join(l.called())
		if got := string(<-node.heard); got != "before there is a node" {
			t.Errorf("the node hears %q", got)
		}
		node.says <- []byte("a picture")
		if got := string(<-viewer.heard); got != "a picture" {
			t.Errorf("the viewer sees %q", got)
		}
		viewer.says <- []byte("a key")
		if got := string(<-node.heard); got != "a key" {
			t.Errorf("the node hears %q", got)
		}
		time.Sleep(70 * time.Second) // an idle screen stays
		shown := metrictest.Values(c.Consoles.Families())["buildyard_console_sessions_total"]
		if n := c.Consoles.Count(); n != 1 || shown != 1 {
			t.Errorf("%d consoles are open, %v were shown", n, shown)
		}
		viewer.end("", &console.ClosedError{})
		wantEnd(t, node, "viewer has left")
		<-closed
		if n := c.Consoles.Count(); n != 0 {
			t.Errorf("%d consoles are left", n)
		}
	})
}

// TestConsoleEnds: each end reaches both sides, with its reason.
func TestConsoleEnds(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(l *looked, viewer, node *wire, revoke func())
		want string
	}{
		"instance ends": {func(l *looked, _, _ *wire, _ func()) {
			if err := l.Instances.Terminate(l.t.Context(), l.id); err != nil {
				l.t.Fatal(err)
			}
		}, "is no longer running: its state is Terminating"},
		"instance was deleted": {func(l *looked, _, _ *wire, _ func()) { l.lose(l.id) }, "no longer exists"},
		"node leaves": {func(_ *looked, _, node *wire, _ func()) {
			node.end("", &console.ClosedError{})
		}, "node was removed"},
		"node says why": {func(_ *looked, _, node *wire, _ func()) {
			node.end("", &console.ClosedError{Why: "The VM does not run"})
		}, "The VM does not run"},
		"permission is taken":  {func(_ *looked, _, _ *wire, revoke func()) { revoke() }, "may no longer see"},
		"viewer takes nothing": {func(_ *looked, _, node *wire, _ func()) { flood(node) }, "too slow"},
		"node takes nothing":   {func(_ *looked, viewer, _ *wire, _ func()) { flood(viewer) }, "too slow"},
		"viewer answers no more": {func(_ *looked, viewer, _ *wire, _ func()) {
			viewer.deaf.Store(true)
		}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				l := running(t, c)
				ctx, revoke := context.WithCancel(t.Context())
				defer revoke()
				viewer, _, closed := l.open(ctx)
				node := l.join(l.called())
				x.do(l, viewer, node, revoke)
				<-closed
				if node.left == nil {
					wantEnd(t, node, x.want)
				}
				wantEnd(t, viewer, x.want)
			})
		})
	}
}

// flood sends more than the other side accepts.
func flood(w *wire) {
	go func() {
		for {
			select {
			case w.says <- make([]byte, 1<<10):
			case <-w.over:
				return
			}
		}
	}()
}

func TestConsoleOfSilentNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		viewer, _, closed := l.open(t.Context())
		call := l.called()
		time.Sleep(6 * time.Second)
		if again := l.called(); again != call {
			t.Errorf("called again by %+v, not %+v", again, call)
		}
		<-closed
		wantEnd(t, viewer, "has not answered within 15s")
		if _, err := l.Consoles.Take(l.a.id, call.Session); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("late: %v", err)
		}
		if answer, err := l.a.tryPoll(api.PollRequest{Held: l.a.held, HasHeld: true}, 0); err != nil ||
			len(answer.Consoles) > 0 {
			t.Errorf("called by %+v, %v", answer, err)
		}
	})
}

// TestConsoleSessionsAreGoodOnce: a session can be used one time, by the requested node.
func TestConsoleSessionsAreGoodOnce(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		other := c.join("other", 1)
		_, _, _ = l.open(t.Context())
		call := l.called()
		for name, x := range map[string][2]string{
			"another node": {other.id, call.Session}, "a guess": {l.a.id, call.Session[1:] + "A"},
			"nothing": {l.a.id, ""},
		} {
			if _, err := l.Consoles.Take(x[0], x[1]); farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := l.Consoles.Take(l.a.id, call.Session); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Consoles.Take(l.a.id, call.Session); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("twice: %v", err)
		}
	})
}

func TestConsolesAreBounded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range console.MaxPerInstance {
			if _, err := l.Consoles.Open(ctx, l.id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Consoles.Open(ctx, l.id); farm.CodeOf(err) != farm.CodeBusy {
			t.Errorf("one more: %v", err)
		}
		if got, err := l.Consoles.Of(ctx, l.id); err != nil || got.Open != console.MaxPerInstance ||
			got.NodeID != l.a.id {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestConsoleNeedsWhatRuns(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		ask := func(id, want string) {
			t.Helper()
			for _, f := range []func() error{
				func() error { _, err := l.Consoles.Of(t.Context(), id); return err },
				func() error { _, err := l.Consoles.Open(t.Context(), id); return err },
			} {
				if err := f(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		}
		ask(c.mustStart(StartRequest{})[0], "is Scheduling")
		ask("nobody", "Not found")
		l.a.info.Abilities = nil
		l.a.poll(api.PollRequest{Info: l.a.info, Held: l.a.held, HasHeld: true}, 0)
		ask(l.id, "does not support consoles")
		l.a.info.Abilities = []string{"console"}
		l.a.contact()
		time.Sleep(nodelink.ContactGap + time.Second)
		ask(l.id, "has no contact with this replica")
		time.Sleep(2 * time.Minute)
		ask(l.id, "is offline")
	})
}

// TestConsolesWakePolls: a node that waits in a poll gets the console request immediately, and the
// response is not mistaken for an empty one.
func TestConsolesWakePolls(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		l := running(t, c)
		l.a.contact()
		answers := make(chan *api.PollAnswer)
		go func() {
			answer, err := l.Link.Poll(t.Context(), l.a.cred, api.PollRequest{
				Protocol: api.LinkProtocol, NodeID: l.a.id, BootID: l.a.boot, InfoHash: "info", HeldHash: "1",
			}, nodelink.MaxWait)
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
		synctest.Wait()
		began := time.Now()
		l.open(t.Context())
		answer := <-answers
		if len(answer.Consoles) != 1 || nodelink.IsEmptyPoll(answer) || time.Since(began) != 0 {
			t.Errorf("%+v after %s, quiet: %t", answer, time.Since(began), nodelink.IsEmptyPoll(answer))
		}
	})
}
