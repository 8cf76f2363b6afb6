package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// attackAll begins all attacks together, but for those of hostile callers. Each is bounded in rate, and ends with ctx.
func (s *site) attackAll(ctx context.Context, among *regexp.Regexp) (*attackers, error) {
	a := &attackers{among: among, by: map[string]*outcome{}}
	for _, begin := range []func(context.Context, *attackers) error{s.attackAsNode, s.attackAsPusher, s.attackSlowly} {
		if err := begin(ctx, a); err != nil {
			return nil, err
		}
	}

	guessers := make([]caller, 8)
	for i := range guessers {
		guessers[i] = s.attacker()
	}
	tries := []guess{s.rootGuess(s.controller, "/api/v1/status"), s.rootGuess(s.registry,
		"/registry/status"), s.loginGuess, s.joinGuess}
	a.every(ctx, "guesses", 50*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		got, err := tries[n%len(tries)](ctx, guessers[n%len(guessers)], false)
		o.note(got, err)
	})
	browser, cookies, err := s.browser(ctx, s.controller)
	if err != nil {
		return nil, err
	}
	a.every(ctx, "pages of other sites", 100*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		header := append(append([]string{"Content-Type", "text/plain"}, cookies...), forgeries[n%len(forgeries)]...)
		got, err := browser.send(ctx, "POST "+s.controller+"/api/v1/vm", s.create(1, ""), header...)
		o.note(got, err)
	})
	a.every(ctx, "full disk of the registry", 10*time.Second, s.fullAndFree)
	return a, nil
}

// attackAsNode begins the attacks of a node.
func (s *site) attackAsNode(ctx context.Context, a *attackers) error {
	m, err := s.join(ctx, "hostile")
	if err != nil {
		return err
	}
	token, err := noOrder(ctx, s, m)
	if err != nil {
		return err
	}
	a.member = m
	shows := m.with("Bearer " + token)
	a.every(ctx, "node at the registry", 100*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		t := nodeTries[n%len(nodeTries)]
		as := strings.NewReplacer("id=A", "id="+s.a, "id=B", "id="+s.b, `"A"`, `"`+s.a+`"`, `"B"`, `"`+s.b+`"`, "/A/",
			"/"+s.a+"/", "NEW", uuid.NewString())
		method, path, _ := strings.Cut(as.Replace(t.request), " ")
		got, err := shows.send(ctx, method+" "+s.registry+path, as.Replace(t.body))
		o.note(got, err)
	})
	var invented []api.InventoryItem
	for range 200 {
		invented = append(invented, api.InventoryItem{VMID: uuid.NewString()})
	}
	a.every(ctx, "node that lies", 200*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		r := m.pollRequest(invented)
		info := m.info
		info.Hypervisor, r.Info, r.InfoHash = fmt.Sprint(n), &info, fmt.Sprint("i", n)
		if r.HeldHash = fmt.Sprint("h", n); n%5 == 0 {
			r.Host = strings.Repeat("h", 1<<20)
		}
		got, err := m.post(ctx, api.PathPoll+"?wait=0s", r)
		o.note(got, err)
	})
	return nil
}

// attackAsPusher begins the attacks of a caller who may push.
func (s *site) attackAsPusher(ctx context.Context, a *attackers) error {
	c, err := s.keyed(ctx, "pusher", everything)
	if err != nil {
		return err
	}
	a.every(ctx, "negotiations", 100*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		got, err := c.send(ctx, "POST "+s.registry+"/registry/v2/push", emptyPush(s.b, fmt.Sprint("evil", n), ""))
		o.note(got, err)
	})
	a.every(ctx, "reservations", time.Second, func(ctx context.Context, o *outcome, n int) {
		got, err := c.send(ctx, "POST "+s.registry+"/registry/v2/push", reserve(s.b, fmt.Sprint("large", n), 100<<20))
		o.note(got, err)
	})
	return nil
}

// attackAsCaller begins the attacks of a caller with an API key.
func (s *site) attackAsCaller(ctx context.Context, a *attackers) error {
	c, err := s.keyed(ctx, "flooder", everything)
	if err != nil {
		return err
	}
	a.every(ctx, "creates with scripts of 200 KB", 100*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		got, err := c.send(ctx, "POST "+s.controller+"/api/v1/vm",
			s.create(1, fmt.Sprint(n, strings.Repeat("x", 200<<10))))
		o.note(got, err)
	})
	a.every(ctx, "creates of 1,000 instances", time.Second, func(ctx context.Context, o *outcome, _ int) {
		got, err := c.send(ctx, "POST "+s.controller+"/api/v1/vm", s.create(1000, ""))
		o.note(got, err)
	})
	a.every(ctx, "Idempotency-Keys", 100*time.Millisecond, func(ctx context.Context, o *outcome, n int) {
		got, err := c.send(ctx, "POST "+s.controller+"/api/v1/vm", s.create(1, ""), "Idempotency-Key",
			fmt.Sprint("key", n))
		o.note(got, err)
	})
	for name, address := range map[string]string{
		"watches": s.controller + "/api/v1/vm/watch", "log streams": s.registry + "/registry/log/stream?service=x",
	} {
		a.every(ctx, name, 200*time.Millisecond, func(ctx context.Context, o *outcome, _ int) {
			got, err := c.follow(ctx, "GET "+address)
			o.note(got, err)
		})
	}
	return nil
}

// slowConnections is how many slow connections of each kind an attacker has.
const slowConnections = 60

// attackSlowly begins slow bodies and readers.
func (s *site) attackSlowly(ctx context.Context, a *attackers) error {
	c, err := s.keyed(ctx, "sluggish", everything)
	if err != nil {
		return err
	}
	deaf, err := s.keyed(ctx, "deaf", everything)
	if err != nil {
		return err
	}
	whats := []string{"POST " + s.controller + "/api/v1/vm", "POST " + s.controller + "/login", "POST " + s.registry +
		"/log"}
	for range slowConnections {
		a.every(ctx, "slow bodies", time.Second, func(ctx context.Context, o *outcome, n int) {
			if with, _ := slowBody(ctx, c, whats[n%len(whats)]); with != "" {
				o.refuse(with)
			}
		})
		a.every(ctx, "readers that do not read", time.Second, func(ctx context.Context, o *outcome, _ int) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if ended, err := deaf.deaf(ctx, s.controller+"/api/v1/vm"); err == nil && ended {
				o.refuse("closed")
			}
		})
	}
	return nil
}
