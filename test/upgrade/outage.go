package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// outage asks both services again and again, and measures how long they do not answer.
type outage struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	longest map[string]time.Duration // service -> longest time without a successful answer
	answers map[string]int
}

const (
	outageInterval = 50 * time.Millisecond
	outageTimeout  = 5 * time.Second // of one call, as the clients with the shortest have
)

// watchOutages begins to ask. The caller has to call end.
func watchOutages(ctx context.Context, c *cloud) *outage {
	ctx, cancel := context.WithCancel(ctx)
	o := &outage{cancel: cancel, longest: map[string]time.Duration{}, answers: map[string]int{}}
	for name, address := range map[string]string{
		"controller": "http://" + c.controller + "/api/v1/vm", "registry": "http://" + c.registry + "/registry/vm",
	} {
		o.running.Go(func() { o.watch(ctx, name, address) })
	}
	return o
}

// watch asks one service until ctx ends.
func (o *outage) watch(ctx context.Context, name, address string) {
	last := time.Now()
	for {
		err := askOnce(ctx, address)
		if ctx.Err() != nil {
			err = nil // the time since the last answer counts
		}
		o.mu.Lock()
		if err == nil {
			o.longest[name] = max(o.longest[name], time.Since(last))
			o.answers[name]++
			last = time.Now()
		}
		o.mu.Unlock()
		if !rig.Pause(ctx, outageInterval) {
			return
		}
	}
}

// askOnce returns an error unless a service answers with status 200. Each call opens a connection.
func askOnce(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth("root", rootToken)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return errors.Join(err, resp.Body.Close())
}

// end stops asking and returns the longest times; it is an error if one is above the limit.
func (o *outage) end() (string, error) {
	o.cancel()
	o.running.Wait()
	var lines []string
	var err error
	for name, longest := range o.longest {
		line := fmt.Sprintf("%s: %d answers, at most %.2f s without one", name, o.answers[name], longest.Seconds())
		if longest > maxOutage {
			err = errors.Join(err, errors.New(line))
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; "), err
}
