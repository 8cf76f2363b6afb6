package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// workLimit bounds the wait for something that is measured.
const workLimit = time.Minute

// replicated measures every row on one cloud.
func (b *bench) replicated(ctx context.Context) (err error) {
	c, err := b.openCloud(ctx)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return err
	}
	if err := b.creates(ctx, c); err != nil || !b.Wants(rowStart, rowTakeover, rowMember) {
		return err
	}
	if err := c.join(ctx, b); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *replicated) error{b.starts, b.memberKills, b.takeovers} {
		if err := measure(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// create creates one instance.
func (c *replicated) create(ctx context.Context, client *loadgen.Client) (id string, err error) {
	body, err := json.Marshal(loadgen.CreateRequest{Template: c.template, Tag: "v1", Count: 1, ExternalID: "bench"})
	if err != nil {
		return "", err
	}
	raw, err := client.Call(ctx, http.MethodPost, loadgen.InstancesPath, body)
	if err != nil {
		return "", err
	}
	var ids []string
	if err := json.Unmarshal(raw, &ids); err != nil || len(ids) != 1 {
		return "", errors.Join(err, fmt.Errorf("%d instances were created", len(ids)))
	}
	return ids[0], nil
}

// creates compares the rates of both clouds.
func (b *bench) creates(ctx context.Context, c *replicated) error {
	if !b.Wants(rowCreates) {
		return nil
	}
	single := loadgen.NewClient(c.embedded.Controller, callers+2)
	defer single.Close()
	var ours, theirs []float64
	for i := range rounds + 1 {
		embedded, err := c.rate(ctx, single)
		if err != nil {
			return err
		}
		replicated, err := c.rate(ctx, c.control[0].client)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // both warm up
		}
		ours, theirs = append(ours, replicated), append(theirs, embedded)
		b.Add(rowCreates, replicated/embedded)
	}
	b.Note(rowCreates, "%.0f/s, embedded %.0f/s", row.Median(ours), row.Median(theirs))
	b.Say("creates: %.0f/s, embedded %.0f/s", row.Median(ours), row.Median(theirs))
	return nil
}

// rate returns the creates per second of many callers, and removes what they made.
func (c *replicated) rate(ctx context.Context, client *loadgen.Client) (float64, error) {
	var mu sync.Mutex
	var made []string
	began := time.Now()
	group, working := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for time.Since(began) < window {
				id, err := c.create(working, client)
				if err != nil {
					return err
				}
				mu.Lock()
				made = append(made, id)
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	perSecond := float64(len(made)) / time.Since(began).Seconds()
	return perSecond, errors.Join(err, c.remove(ctx, client, made))
}

// remove terminates instances and waits until they are gone.
func (c *replicated) remove(ctx context.Context, client *loadgen.Client, ids []string) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for _, id := range ids {
		group.Go(func() error { return client.Terminate(working, id) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return runner.Wait{What: "the instances to go", Limit: workLimit, Every: 250 * time.Millisecond}.Await(ctx,
		func() (bool, error) {
			items, err := client.List(ctx)
			return len(items) == 0, err
		})
}

// starts measures single starts.
func (b *bench) starts(ctx context.Context, c *replicated) error {
	if !b.Wants(rowStart) {
		return nil
	}
	client := c.control[0].client
	w := watch(ctx, client)
	defer w.close()
	var took []float64
	var ids []string
	for i := range starts + warmUpStarts {
		began := time.Now()
		id, err := c.create(ctx, client)
		if err != nil {
			return err
		}
		at, err := w.started(ctx, id)
		if err != nil {
			return err
		}
		ids = append(ids, id)
		if i >= warmUpStarts {
			took = append(took, runner.MS(at.Sub(began)))
			b.Add(rowStart, took[len(took)-1])
		}
	}
	b.Note(rowStart, "p99 %.1f ms", row.Quantile(took, 0.99))
	b.Say("starts: p50 %.2f ms, p99 %.2f ms", row.Quantile(took, 0.5), row.Quantile(took, 0.99))
	return c.remove(ctx, client, ids)
}

// warmUpStarts are not counted: in them the nodes pull the template.
const warmUpStarts = 3 * nodes

// memberKills measures how long no create is acknowledged when the leading etcd member is killed.
func (b *bench) memberKills(ctx context.Context, c *replicated) error {
	if !b.Wants(rowMember) {
		return nil
	}
	for range failures {
		i, err := c.leadingMember(ctx)
		if err != nil {
			return err
		}
		gap, ids, err := c.longestGap(ctx, func() error { return c.members[i].Kill() })
		if err != nil {
			return err
		}
		b.Add(rowMember, gap.Seconds())
		b.Say("etcd leader killed: %.2f s without an acknowledged create", gap.Seconds())
		if err := c.members[i].Start(); err != nil {
			return err
		}
		if err := c.remove(ctx, c.control[0].client, ids); err != nil {
			return err
		}
		rig.Pause(ctx, 5*time.Second) // the member follows again
	}
	return nil
}

// longestGap creates instances without a pause around an event, and returns the longest time between two
// acknowledgments.
func (c *replicated) longestGap(ctx context.Context, event func() error) (gap time.Duration, ids []string, err error) {
	const before, after = 500 * time.Millisecond, 8 * time.Second
	client := c.control[0].client
	began, last := time.Now(), time.Now()
	happened := false
	for time.Since(began) < before+after {
		if !happened && time.Since(began) > before {
			if err := event(); err != nil {
				return 0, nil, err
			}
			happened = true
		}
		id, err := c.create(ctx, client)
		if err != nil {
			rig.Pause(ctx, 10*time.Millisecond)
			continue
		}
		gap, last = max(gap, time.Since(last)), time.Now()
		ids = append(ids, id)
		rig.Pause(ctx, 10*time.Millisecond)
	}
	return max(gap, time.Since(last)), ids, nil
}

// takeovers measures how soon another controller places when the leader is killed.
func (b *bench) takeovers(ctx context.Context, c *replicated) error {
	if !b.Wants(rowTakeover) {
		return nil
	}
	// The nodes are at the first controller: it is not killed, and loses the lead first.
	for range failures {
		took, err := c.takeover(ctx)
		if err != nil {
			return err
		}
		b.Add(rowTakeover, took.Seconds())
		b.Say("leader killed: next placement after %.2f s", took.Seconds())
	}
	return nil
}

// takeover makes a controller other than the first the leader, kills it, and waits for a start.
func (c *replicated) takeover(ctx context.Context) (time.Duration, error) {
	victim := c.control[1]
	if err := errors.Join(c.control[0].freeze(), c.control[2].freeze()); err != nil {
		return 0, err
	}
	rig.Pause(ctx, 6*time.Second) // the lease of a frozen leader ends
	if err := errors.Join(c.control[0].resume(), c.control[2].resume()); err != nil {
		return 0, err
	}
	client := c.control[0].client
	if err := rig.Ready(ctx, c.control[0].Process, c.control[0].address); err != nil {
		return 0, err
	}
	rig.Pause(ctx, time.Second)
	w := watch(ctx, client)
	defer w.close()
	if err := victim.Kill(); err != nil {
		return 0, err
	}
	began := time.Now()
	var id string
	for deadline := began.Add(workLimit); ; {
		var err error
		if id, err = c.create(ctx, client); err == nil {
			break
		}
		if time.Now().After(deadline) || !rig.Pause(ctx, 20*time.Millisecond) {
			return 0, err
		}
	}
	at, err := w.started(ctx, id)
	if err != nil {
		return 0, err
	}
	if err := victim.Start(); err != nil {
		return 0, err
	}
	return at.Sub(began), errors.Join(c.remove(ctx, client, []string{id}),
		rig.Ready(ctx, victim.Process, victim.address))
}
