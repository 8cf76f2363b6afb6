package etcd

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemberMonitor: a member that fails gets no calls, one that is back gets them again, and when all
// fail all are tried.
func TestMemberMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		frozen, cutOff := map[string]bool{}, map[string]bool{}
		var used, dropped []string
		m := newMemberMonitor([]string{"a", "b", "c"}, func(ctx context.Context, endpoint string) error {
			mu.Lock()
			isFrozen, isCutOff := frozen[endpoint], cutOff[endpoint]
			mu.Unlock()
			if isFrozen {
				<-ctx.Done()
				return ctx.Err()
			}
			if isCutOff {
				return errNoLeader
			}
			return nil
		}, func(endpoints []string) { used = append(used, strings.Join(endpoints, "")) },
			func(endpoint string) { dropped = append(dropped, endpoint) }, nil)
		var running sync.WaitGroup
		running.Go(func() { m.run(ctx) })

		step := func(change func(), wait time.Duration) {
			mu.Lock()
			change()
			mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
		}
		step(func() {}, 3*time.Second)
		step(func() { frozen["b"] = true }, monitorInterval+monitorTimeout)
		step(func() { cutOff["a"] = true }, monitorInterval)
		step(func() { delete(frozen, "b") }, monitorTimeout+monitorInterval)
		step(func() { cutOff["b"], cutOff["c"] = true, true }, 2*monitorInterval)
		step(func() { clear(cutOff) }, monitorInterval)
		cancel()
		running.Wait()
		if !slices.Contains(used, "ac") || !slices.Contains(used, "c") || !slices.Contains(used, "bc") ||
			used[len(used)-1] != "abc" {
			t.Errorf("used in turn %q", used)
		}
		if len(dropped) < 2 || dropped[0] != "b" || dropped[1] != "a" {
			t.Errorf("dropped %q", dropped)
		}
	})
}

// TestSingleMemberIsNotProbed: a load balancer in front of the cluster has no alternative.
func TestSingleMemberIsNotProbed(t *testing.T) {
	m := newMemberMonitor([]string{"a"}, func(context.Context, string) error {
		t.Error("probed")
		return errors.New("down")
	}, func([]string) { t.Error("changed") }, func(string) { t.Error("dropped") }, nil)
	m.run(t.Context())
}

// TestConnTracker: dropping an endpoint ends the connections to it, and no others.
func TestConnTracker(t *testing.T) {
	var tracker connTracker
	open := func() (address string, conn net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if conn, err = tracker.dial(t.Context(), l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String(), conn
	}
	address, dropped := open()
	_, kept := open()
	tracker.drop("http://" + address)
	if _, err := dropped.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the dropped connection: %v", err)
	}
	if err := kept.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Error(err)
	}
	if _, err := kept.Read(make([]byte, 1)); errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		t.Errorf("the other connection: %v", err)
	}
	if err := kept.Close(); err != nil || len(tracker.open[address]) != 0 {
		t.Errorf("closed: %v, still tracked %d", err, len(tracker.open[address]))
	}
	if _, err := tracker.dial(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("connected to nothing")
	}
}
