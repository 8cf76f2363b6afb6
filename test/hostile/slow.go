package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// slowCallers are the attacks of clients that send or read as slowly as they are let.
var slowCallers = family{name: "slow callers", site: arrangement{nodes: 4}, attacks: []attack{
	{"slow bodies", slowRequests, false},
	{"slow bodies of who is not known", slowAnonymous, false},
	{"readers that do not read", slowReaders, false},
}}

func slowRequests(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "slow", everything)
	if err != nil {
		o.check(err)
		return
	}
	slowBodies(ctx, o, c, []string{"POST " + s.controller + "/api/v1/vm", "PUT " + s.controller +
		"/api/v1/vm", "POST " + s.registry + "/log"}, 200)
}

func slowAnonymous(ctx context.Context, s *site, o *outcome) {
	slowBodies(ctx, o, s.attacker(), []string{
		"POST " + s.controller + "/login", "POST " + s.controller + "/tap/v1/hand",
		"POST " + s.controller + "/tap/v1/shake", "POST " + s.registry + "/login",
	}, 200)
}

// slowTime is more than a slow client may be served: a minute of grace for layers, and what scheduling adds.
const slowTime = 4 * time.Minute

// slowBodies sends a byte a second over so many connections, until every one is answered or closed.
func slowBodies(ctx context.Context, o *outcome, c caller, whats []string, connections int) {
	ctx, stop := context.WithTimeout(ctx, slowTime)
	defer stop()
	began, longest := time.Now(), time.Duration(0)
	var (
		wg sync.WaitGroup
		mu sync.Mutex // guards longest
	)
	for i := range connections {
		wg.Go(func() {
			with, said := slowBody(ctx, c, whats[i%len(whats)])
			switch {
			case with == "":
				o.fault("a slow body is served without an end")
				return
			case with == "400" && !strings.Contains(said, "slowly") && !strings.Contains(said, "no valid header"):
				o.fault("%s is refused for something else: %.200s", whats[i%len(whats)], said)
			}
			o.refuse(with)
			mu.Lock()
			longest = max(longest, time.Since(began))
			mu.Unlock()
		})
	}
	wg.Wait()
	o.effect("the last slow body was ended after %.0f s", longest.Seconds())
}

// slowBody sends one body, and returns how it was ended and the response; "" when it was not.
func slowBody(ctx context.Context, c caller, what string) (with, said string) {
	reader, writer := io.Pipe()
	r, err := c.request(ctx, what, reader)
	if err != nil {
		return "", err.Error()
	}
	r.ContentLength = 60_000
	go func() {
		for rig.Pause(ctx, time.Second) {
			if _, err := writer.Write([]byte("x")); err != nil {
				return
			}
		}
		_ = writer.CloseWithError(ctx.Err())
	}()
	defer func() { _ = reader.CloseWithError(io.ErrClosedPipe) }()
	by := http.Client{Transport: c.by.Transport}
	resp, err := by.Do(r)
	if ctx.Err() != nil {
		return "", ""
	}
	if err != nil {
		return "closed", err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, mostRead)) // the connection may end before it
	return fmt.Sprint(resp.StatusCode), string(text)
}

// Answers that are not read: of so many connections, each of a list of so many instances.
const (
	deafReaders   = 100
	listInstances = 1000
)

// slowReaders asks for a long list over many connections and reads nothing of it.
func slowReaders(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "deaf", everything)
	if err != nil {
		o.check(err)
		return
	}
	ids, err := s.other.Start(ctx,
		client.StartRequest{TemplateID: s.b, GroupID: s.empty, Count: listInstances, ExternalID: strings.Repeat("x",
			4000)})
	if err != nil {
		o.fault("make a long list: %v", err)
		return
	}
	defer s.endAll(context.WithoutCancel(ctx), o, ids)
	before, err := rig.Memory(s.up.PID())
	o.check(err)
	ctx, stop := context.WithTimeout(ctx, slowTime)
	defer stop()
	peak := s.watchMemory(ctx)
	began := time.Now()
	var wg sync.WaitGroup
	for range deafReaders {
		wg.Go(func() {
			ended, err := c.deaf(ctx, s.controller+"/api/v1/vm")
			o.check(err)
			if err == nil && !ended {
				o.fault("a reader that does not read is served without an end")
			} else {
				o.refuse("closed")
			}
		})
	}
	wg.Wait()
	o.effect("the last reader was cut off after %.0f s, memory %d MiB before and %d MiB at most",
		time.Since(began).Seconds(), before>>20, peak()>>20)
}

// deaf sends a request and does not read the answer, until the service has ended the connection. It
// reports whether the service did.
func (c caller) deaf(ctx context.Context, address string) (ended bool, err error) {
	r, err := c.request(ctx, "GET "+address, nil)
	if err != nil {
		return false, err
	}
	at, err := url.Parse(address)
	if err != nil {
		return false, err
	}
	transport, ok := c.by.Transport.(*http.Transport)
	if !ok {
		return false, fmt.Errorf("the caller's connections are %T", c.by.Transport)
	}
	conn, err := transport.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4096); err != nil {
			return false, err
		}
	}
	if err := r.Write(conn); err != nil {
		return false, err
	}
	// A service that has closed the connection answers what is sent then with a reset.
	for rig.Pause(ctx, time.Second) {
		if _, err := conn.Write([]byte("\r\n")); err != nil {
			return true, nil //nolint:nilerr // the end is what was waited for
		}
	}
	return false, nil
}

// endAll terminates instances.
func (s *site) endAll(ctx context.Context, o *outcome, ids []string) {
	flood(len(ids), func(n int) {
		if err := s.other.Terminate(ctx, ids[n]); err != nil && !errors.Is(err, client.ErrNotFound) {
			o.fault("terminate an instance of the attack: %v", err)
		}
	})
}

// watchMemory samples the memory of the service until the peak is asked for.
func (s *site) watchMemory(ctx context.Context) (peak func() int64) {
	ctx, stop := context.WithCancel(ctx)
	done, most := make(chan struct{}), int64(0)
	go func() {
		defer close(done)
		for {
			if now, err := rig.Memory(s.up.PID()); err == nil {
				most = max(most, now)
			}
			if !rig.Pause(ctx, 200*time.Millisecond) {
				return
			}
		}
	}()
	return func() int64 {
		stop()
		<-done
		return most
	}
}

// follow opens a stream and keeps it open, reading what comes. It returns the answer's head, or the
// whole refusal.
func (c caller) follow(ctx context.Context, what string) (a answer, err error) {
	r, err := c.request(ctx, what, nil)
	if err != nil {
		return a, err
	}
	by := http.Client{Transport: c.by.Transport}
	resp, err := by.Do(r) //nolint:bodyclose // its reader closes it
	if err != nil {
		return a, err
	}
	a.code, a.header = resp.StatusCode, resp.Header
	if a.code != http.StatusOK {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, mostRead))
		_ = resp.Body.Close()
		return a, err
	}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		_, _ = bufio.NewReader(resp.Body).WriteTo(io.Discard)
	}()
	return a, nil
}
