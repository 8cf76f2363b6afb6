package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// hostileCaller has the attacks of a caller with its own API key. Some limits are small, so that
// they are reached soon.
var hostileCaller = family{name: "hostile caller", site: arrangement{nodes: 4, settings: map[string]string{
	"SVC_MAX_IDEMPOTENCY_KEYS": "400", "SVC_MAX_WATCHES": "64", "SVC_MAX_LOG_STREAMS": "64",
}}, attacks: []attack{
	{"1,700 waiting creates with scripts of 200 KB", scriptedCreates, false},
	{"creates of 1,000 instances at a time", largeCreates, false},
	{"a restart with all that waits", restarted, true},
	{"300 Idempotency-Keys", idempotencyKeys, false},
	{"watches", func(ctx context.Context, s *site, o *outcome) {
		s.streams(ctx, o, "watcher", s.controller+"/api/v1/vm/watch", "SVC_MAX_WATCHES")
	}, false},
	{"log streams", func(ctx context.Context, s *site, o *outcome) {
		s.streams(ctx, o, "streamer", s.registry+"/registry/log/stream?service=x", "SVC_MAX_LOG_STREAMS")
	}, false},
}}

// concurrentRequests is how many requests an attacker has under way.
const concurrentRequests = 8

// flood makes so many requests, some in parallel.
func flood(count int, do func(n int)) {
	var wg sync.WaitGroup
	for w := range concurrentRequests {
		wg.Go(func() {
			for n := w; n < count; n += concurrentRequests {
				do(n)
			}
		})
	}
	wg.Wait()
}

// create is the body of a create that waits indefinitely: its group has no nodes.
func (s *site) create(count int, script string) string {
	body, _ := json.Marshal(map[string]any{ // numbers and texts always encode
		"vmid": s.b, "group_id": s.empty, "count": count,
		"startup_script": base64.StdEncoding.EncodeToString([]byte(script)), "external_id": "hostile",
	})
	return string(body)
}

func scriptedCreates(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "scripter", everything)
	if err != nil {
		o.check(err)
		return
	}
	before, err := rig.Memory(s.up.PID())
	o.check(err)
	peak := s.watchMemory(ctx)
	flood(1700, func(n int) {
		// No two scripts are alike, so that none can stand for another.
		a, err := c.send(ctx, "POST "+s.controller+"/api/v1/vm",
			s.create(1, fmt.Sprint(n, strings.Repeat("x", 200<<10))))
		o.limited(a, err, "SVC_MAX_SCRIPTS_SIZE", "SVC_MAX_WAITING")
	})
	o.someRefused("the creates")
	_, taken := o.count("429")
	o.effect("%d instances wait, memory %d MiB before and %d MiB at most", taken, before>>20, peak()>>20)
}

func largeCreates(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "thousands", everything)
	if err != nil {
		o.check(err)
		return
	}
	for range 40 {
		a, err := c.send(ctx, "POST "+s.controller+"/api/v1/vm", s.create(1000, ""))
		o.limited(a, err, "SVC_MAX_WAITING")
	}
	o.someRefused("the creates")
}

// restarted restarts the service and finds what it takes with all that the attacks before have left.
func restarted(ctx context.Context, s *site, o *outcome) {
	before, err := rig.Memory(s.up.PID())
	o.check(err)
	o.check(s.up.End())
	began := time.Now()
	if err := s.boot(ctx); err != nil {
		o.check(err)
		return
	}
	took := time.Since(began)
	peak := s.watchMemory(ctx)
	rig.Pause(ctx, 5*time.Second)
	after := peak()
	if after > 2*before {
		o.fault("memory was %d MiB and is %d MiB after a restart", before>>20, after>>20)
	}
	o.refuse("started again")
	o.effect("ready after %.1f s, memory %d MiB before and %d MiB after", took.Seconds(), before>>20, after>>20)
}

func idempotencyKeys(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "namer", everything)
	if err != nil {
		o.check(err)
		return
	}
	for n := range 300 {
		body := fmt.Sprintf(`{"name":"hostile %d"}`, n)
		a, err := c.send(ctx, "POST "+s.controller+"/api/v1/group", body, "Idempotency-Key", fmt.Sprint("key", n))
		o.limited(a, err, "SVC_MAX_IDEMPOTENCY_KEYS")
	}
	o.someRefused("the keys")
	a, err := c.send(ctx, "POST "+s.controller+"/api/v1/group", `{"name":"hostile 0"}`, "Idempotency-Key", "key0")
	if err != nil || a.code != http.StatusOK {
		o.fault("a known key is answered %d %.200s %v", a.code, a.body, err)
	}
}

// streams opens streams until one caller is refused more, and then one of another caller.
func (s *site) streams(ctx context.Context, o *outcome, name, address, setting string) {
	c, err := s.keyed(ctx, name, everything)
	if err != nil {
		o.check(err)
		return
	}
	open, stop := context.WithCancel(ctx)
	defer stop()
	for range 40 {
		a, err := c.follow(open, "GET "+address)
		o.limited(a, err, setting)
	}
	o.someRefused("the streams")
	a, err := s.rooted.follow(open, "GET "+address)
	if err != nil || a.code != http.StatusOK {
		o.fault("a stream of somebody else is answered %d %.200s %v", a.code, a.body, err)
	}
}
