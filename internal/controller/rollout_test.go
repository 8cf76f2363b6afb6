package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// inWaves runs a test with nodes of which two pull at a time.
func inWaves(t *testing.T, nodes int, test func(t *testing.T, c *cloud, nodes []*agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
		c.start(Options{DistributePulls: 2})
		defer func() { c.stop() }()
		var list []*agent
		for i := range nodes {
			list = append(list, c.join(fmt.Sprint(i), 1))
		}
		test(t, c, list)
	})
}

// havePull returns the nodes that get a pull now.
func havePull(nodes []*agent) (list []*agent) {
	for _, a := range nodes {
		for _, e := range a.cacheJobs() {
			if e.Kind == api.CacheJobPull {
				list = append(list, a)
				break
			}
		}
	}
	return list
}

// TestFewNodesPullAtATime: the other nodes get a slot when one is done, has failed or is removed,
// and in the end all have had one.
func TestFewNodesPullAtATime(t *testing.T) {
	inWaves(t, 6, func(t *testing.T, c *cloud, nodes []*agent) {
		id := c.distribute()
		first := havePull(nodes)
		if len(first) != 2 {
			t.Fatalf("%d nodes are told at once", len(first))
		}
		for i := range 300 { // they take their time
			for _, a := range first {
				a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: float64(i) / 300})
			}
			time.Sleep(10 * time.Second)
			if i%100 == 0 && len(havePull(nodes)) != 0 {
				t.Fatal("another one is told while they pull")
			}
		}
		figures := metrictest.Values(c.Families())
		if figures["buildyard_rollout_nodes"] != 2 || figures["buildyard_cache_jobs_open{distribute}"] != 1 ||
			figures["buildyard_cache_job_nodes_pending{distribute}"] != 6 {
			t.Errorf("%v", figures)
		}
		first[0].tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		second := havePull(nodes)
		first[1].tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobFailed, Message: "full"})
		second = append(second, havePull(nodes)...)
		if len(second) != 2 {
			t.Fatalf("%d nodes are told when two are over", len(second))
		}
		figures = metrictest.Values(c.Families())
		if figures["buildyard_cache_job_nodes_pending{distribute}"] != 4 ||
			figures["buildyard_cache_job_nodes_total{distribute,ok}"] != 1 ||
			figures["buildyard_cache_job_nodes_total{distribute,failed}"] != 1 ||
			figures["buildyard_cache_jobs_open{remove}"] != 0 {
			t.Errorf("%v", figures)
		}
		if err := c.Nodes.Delete(t.Context(), second[0].id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var left []*agent
		for _, a := range nodes {
			if a != second[0] {
				left = append(left, a)
			}
		}
		third := havePull(left)
		if len(third) != 1 {
			t.Fatalf("%d nodes are told when one is gone", len(third))
		}
		if err := c.CacheJobs.Cancel(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		c.distribute()
		if fourth := havePull(left); len(fourth) != 2 {
			t.Errorf("after a cancel %d nodes are told", len(fourth))
		}
	})
}

// TestFreeRolloutSlotWakesANode: a node that waits in its poll is notified immediately when a slot is free for
// it.
func TestFreeRolloutSlotWakesANode(t *testing.T) {
	inWaves(t, 3, func(t *testing.T, c *cloud, nodes []*agent) {
		id := c.distribute()
		pulling := havePull(nodes[:2])
		got := make(chan time.Duration, 1)
		begun := time.Now()
		go func() {
			answer, err := nodes[2].tryPoll(api.PollRequest{Info: nodes[2].info, Held: nodes[2].held, HasHeld: true},
				20*time.Second)
			if err != nil || len(answer.CacheJobs) != 1 {
				t.Errorf("polled %+v, %v", answer.CacheJobs, err)
			}
			got <- time.Since(begun)
		}()
		time.Sleep(7 * time.Second)
		pulling[0].tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		if after := <-got; after != 7*time.Second {
			t.Errorf("told after %s", after)
		}
	})
}

// TestRolloutSlotsOfLostNodes: a node without contact, or without a status of its pull, keeps its slot for a
// while and not indefinitely.
func TestRolloutSlotsOfLostNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		polls bool
		least time.Duration
	}{
		"silent": {false, silentSlot}, "stuck": {true, stuckSlot},
	} {
		t.Run(name, func(t *testing.T) {
			inWaves(t, 3, func(t *testing.T, c *cloud, nodes []*agent) {
				id := c.distribute()
				begun := time.Now()
				lost := havePull(nodes[:2])
				for _, a := range lost {
					a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobAccepted})
				}
				for len(havePull(nodes[2:])) == 0 {
					if time.Since(begun) > time.Hour {
						t.Fatal("it never gets its turn")
					}
					time.Sleep(5 * time.Second)
					if tt.polls {
						havePull(lost)
					}
				}
				if after := time.Since(begun); after < tt.least || after > tt.least+10*time.Second {
					t.Errorf("it got its turn after %s", after)
				}
			})
		})
	}
}

// TestRolloutSlotsOverARestart: nodes that pull when a controller starts count as soon as they report it.
func TestRolloutSlotsOverARestart(t *testing.T) {
	inWaves(t, 4, func(t *testing.T, c *cloud, nodes []*agent) {
		id := c.distribute()
		pulling := havePull(nodes)
		c.stop()
		c.start(Options{DistributePulls: 2})
		for _, a := range nodes {
			a.c = c
		}
		for _, a := range pulling {
			a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: 0.5})
		}
		if again := havePull(nodes); !slices.Equal(again, pulling) { // to a new controller they are new
			t.Errorf("told are %d nodes, and not those that pull", len(again))
		}
		for _, a := range pulling {
			a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		}
		if more := havePull(nodes); len(more) != 2 {
			t.Errorf("%d are told when they are done", len(more))
		}
		view, err := c.CacheJobs.Get(t.Context(), farm.CacheJobDistribute, id)
		if err != nil || len(view.On) != 4 {
			t.Errorf("%+v, %v", view.On, err)
		}
	})
}
