package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/transfer"
)

// caseFaults pushes and pulls while the server fails, cuts and delays requests. Everything ends well.
func caseFaults(ctx context.Context, s *stage) (string, error) {
	r, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	var mu sync.Mutex
	counts := map[string]int{}
	s.proxy.setRule(func(q *http.Request) action {
		mu.Lock()
		defer mu.Unlock()
		name, a := s.randomFault(q)
		if name != "" {
			counts[name]++
		}
		return a
	})
	want := map[string]diskFile{}
	for i, size := range []int64{smallDisk, largeDisk, smallDisk, largeDisk, largeDisk} {
		tag := fmt.Sprint("v", i)
		if want[tag], err = s.makeDisk(uint64(40+i), size); err != nil {
			return "", err
		}
		if err := s.pushUntilDone(ctx, r, tag, want[tag]); err != nil {
			return fmt.Sprint(counts), err
		}
		if err := s.checkAll(ctx, r, idA, want); err != nil {
			return fmt.Sprint(counts), err
		}
	}
	s.proxy.setRule(nil)
	if err := r.process.End(); err != nil {
		return "", err
	}
	if r, err = s.start(ctx, "two", "s3", nil); err != nil {
		return "", err
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"500", "503", "cut", "lost", "delayed"} {
		if counts[name] == 0 {
			return fmt.Sprint(counts), fmt.Errorf("no request was %s", name)
		}
	}
	return fmt.Sprintf("5 pushes and 15 pulls with faults %v", counts), s.checkAll(ctx, r, idA, want)
}

// faultKinds are the faults in the order in which they happen. A nil action means that the request cannot have it.
var faultKinds = []struct {
	name string
	make func(s *stage, q *http.Request) *action
}{
	{"500", func(*stage, *http.Request) *action { return &action{status: http.StatusInternalServerError} }},
	{"cut", func(s *stage, q *http.Request) *action {
		if q.Method != http.MethodGet {
			return nil
		}
		return &action{cutBody: 1 + s.rnd.Int64N(1<<20)}
	}},
	{"503", func(*stage, *http.Request) *action { return &action{status: http.StatusServiceUnavailable} }},
	{"delayed", func(s *stage, q *http.Request) *action {
		if q.Method != http.MethodPut {
			return nil
		}
		return &action{delayBody: time.Duration(s.rnd.IntN(500)) * time.Millisecond}
	}},
	{"lost", func(*stage, *http.Request) *action { return &action{lost: true} }},
}

// randomFault returns the next fault for about one request in five, so that all kinds happen.
func (s *stage) randomFault(q *http.Request) (string, action) {
	if s.rnd.IntN(5) > 0 {
		return "", action{}
	}
	kind := faultKinds[s.nextFault%len(faultKinds)]
	a := kind.make(s, q)
	if a == nil {
		return "", action{}
	}
	s.nextFault++
	return kind.name, *a
}

// pushUntilDone repeats a push that failed for a time.
func (s *stage) pushUntilDone(ctx context.Context, r *registryProcess, tag string, d diskFile) error {
	return waitUntil(ctx, startLimit, func() error {
		detail, err := r.client.TemplateDetail(ctx, idA)
		for i := 0; err == nil && i < len(detail.Versions); i++ {
			if detail.Versions[i].Tag == tag {
				return nil // an earlier attempt whose response was an error
			}
		}
		return r.push(ctx, idA, tag, d)
	})
}

// caseKills kills the registry with SIGKILL at requests of pushes and reverts: before they reach the server, or after
// the server has carried them out. What was acknowledged is there afterwards, and what is listed can be pulled.
func caseKills(ctx context.Context, s *stage) (string, error) {
	small, err := s.makeDisk(50, smallDisk)
	if err != nil {
		return "", err
	}
	large, err := s.makeDisk(51, largeDisk)
	if err != nil {
		return "", err
	}
	k := &killer{stage: s, disks: map[string]diskFile{"small": small, "large": large}}
	if k.registry, err = s.start(ctx, "one", "s3", nil); err != nil {
		return "", err
	}
	k.places = map[string]int{}
	for k.kills < s.options.kills {
		if err := k.round(ctx); err != nil {
			return k.evidence(), fmt.Errorf("kill %d at %q: %w", k.kills, k.place, err)
		}
	}
	return k.evidence(), nil
}

// killer kills one registry again and again.
type killer struct {
	*stage
	registry *registryProcess
	disks    map[string]diskFile
	kills    int
	place    string // request at which the newest kill was
	places   map[string]int
	at       int // number of the request at which the next kill is
	acked    int
}

func (k *killer) evidence() string {
	return fmt.Sprintf("%d kills at %d kinds of requests, %d acknowledged operations, 0 lost", k.kills, len(k.places),
		k.acked)
}

// round pushes a small and a large version, reverts the large one and deletes the template, with a kill in between.
func (k *killer) round(ctx context.Context) error {
	k.at++
	left, after, done := k.at, k.rnd.IntN(2) == 0, false
	var mu sync.Mutex
	k.place = ""
	k.proxy.setRule(func(q *http.Request) action {
		mu.Lock()
		defer mu.Unlock()
		if done || strings.Contains(q.URL.Path, ".owner") {
			return action{}
		}
		if left--; left > 0 {
			return action{}
		}
		done = true
		k.place = fmt.Sprintf("%s, after %t", describe(q), after)
		k.places[kindOf(describe(q))]++
		kill := func() { _ = k.registry.process.Kill() }
		if after {
			return action{after: kill}
		}
		return action{before: kill, status: http.StatusServiceUnavailable}
	})
	want := map[string]diskFile{}
	err := k.operate(ctx, want)
	k.proxy.setRule(nil)
	mu.Lock()
	killed := done
	mu.Unlock()
	if !killed {
		k.at = 0 // the operations have fewer requests: begin again
		return errors.Join(err, k.clear(ctx))
	}
	k.kills++
	if err := k.registry.startAndWait(ctx); err != nil {
		return err
	}
	if err := k.compare(ctx, want); err != nil {
		return err
	}
	return k.clear(ctx)
}

// kindOf shortens a request to its method and directory.
func kindOf(request string) string {
	method, key, _ := strings.Cut(request, " ")
	dir, _, _ := strings.Cut(key, "/")
	if i := strings.IndexByte(request, ' '); strings.Contains(request[i+1:], " ") {
		dir += request[strings.LastIndexByte(request, ' '):]
	}
	return method + " " + dir
}

// operate runs operations until one fails. want is what is acknowledged; an empty disk: it may be there.
func (k *killer) operate(ctx context.Context, want map[string]diskFile) error {
	impatient, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, err := transfer.New(transfer.Options{BaseURL: k.registry.url, MaxAttempts: 1})
	if err != nil {
		return err
	}
	defer c.Close()
	r := &registryProcess{process: k.registry.process, url: k.registry.url, client: c}
	for _, tag := range []string{"small", "large"} {
		if err := r.push(impatient, idA, tag, k.disks[tag]); err != nil {
			want[tag+"?"] = k.disks[tag]
			return err
		}
		want[tag] = k.disks[tag]
		k.acked++
	}
	if err := r.client.Revert(impatient, transfer.VersionRef{ID: idA, Tag: "large"}); err != nil {
		delete(want, "large")
		want["large?"] = k.disks["large"]
		return err
	}
	delete(want, "large")
	k.acked++
	return nil
}

// compare pulls every version that is there and returns an error if an acknowledged one is missing.
func (k *killer) compare(ctx context.Context, want map[string]diskFile) error {
	detail, err := k.registry.client.TemplateDetail(ctx, idA)
	if err != nil && len(want) > 0 && want["small"].path != "" {
		return fmt.Errorf("the template is lost: %w", err)
	}
	there := map[string]bool{}
	for i := 0; err == nil && i < len(detail.Versions); i++ {
		tag := detail.Versions[i].Tag
		there[tag] = true
		if _, known := want[tag]; !known && want[tag+"?"].path == "" {
			return fmt.Errorf("the version %s is there", tag)
		}
		if err := k.pull(ctx, k.registry, idA, tag, k.disks[tag]); err != nil {
			return fmt.Errorf("version %s: %w", tag, err)
		}
	}
	for tag := range want {
		if !strings.HasSuffix(tag, "?") && !there[tag] {
			return fmt.Errorf("the acknowledged version %s is lost", tag)
		}
	}
	status, err := k.registry.client.Status(ctx)
	if err == nil && len(status.Damaged) > 0 {
		err = fmt.Errorf("damaged: %+v", status.Damaged)
	}
	return err
}

// clear deletes the template for the next round.
func (k *killer) clear(ctx context.Context) error {
	if _, err := k.registry.client.TemplateDetail(ctx, idA); err != nil {
		return nil // it was never created
	}
	return waitUntil(ctx, startLimit, func() error { return k.registry.client.DeleteTemplate(ctx, idA) })
}
