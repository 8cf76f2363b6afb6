package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// named starts instances with an idempotency key, as the routes do it.
func (c *cloud) named(ctx context.Context, name, digest string, count int) ([]string, error) {
	ask := idempotency.Request{ID: name, Digest: digest}
	recall := func(sure bool) (ids []string, ok bool, err error) {
		text, ok, err := c.Idempotency.Lookup(ctx, &ask, sure)
		if ok {
			err = json.Unmarshal(text, &ids)
		}
		return ids, ok, err
	}
	if ids, ok, err := recall(false); ok || err != nil {
		return ids, err
	}
	ids, err := c.Start(idempotency.WithRequest(ctx, ask),
		StartRequest{TemplateID: templateID, Count: count, Options: farm.StartOptions{Priority: 5}})
	if err == nil {
		return ids, nil
	}
	if again, ok, e := recall(true); ok || e != nil {
		return again, e
	}
	return nil, err
}

func (c *cloud) mustName(name string, count int) []string {
	c.t.Helper()
	ids, err := c.named(c.t.Context(), name, "d", count)
	if err != nil || len(ids) != count {
		c.t.Fatalf("%d ids, %v", len(ids), err)
	}
	return ids
}

// wantInstances checks the number of instances.
func (c *cloud) wantInstances(want int) {
	c.t.Helper()
	synctest.Wait()
	if got := c.tables.Instances.Len(); got != want {
		c.t.Errorf("there are %d instances, want %d", got, want)
	}
}

func TestANameIsUsedOnce(t *testing.T) {
	for _, count := range []int{1, 3, MaxCount} {
		inCloud(t, func(t *testing.T, c *cloud) {
			c.join("mac-1", 2)
			first := c.mustName("a", count)
			for range 2 {
				if again := c.mustName("a", count); !slices.Equal(first, again) {
					t.Error("the same name answers something else")
				}
				c.restart()
			}
			if _, err := c.named(t.Context(), "a", "other", count); farm.CodeOf(err) != farm.CodeRefused {
				t.Error("other parameters:", err)
			}
			c.wantInstances(count)
			c.mustName("b", 1)
			c.wantInstances(count + 1)
			c.away(idempotency.Retention)
			time.Sleep(2 * reconcile.SweepInterval)
			synctest.Wait()
			if c.tables.Idempotency.Len() > 0 {
				t.Error("a name is remembered for longer than a day")
			}
			if again := c.mustName("a", count); slices.Equal(first, again) {
				t.Error("a name is remembered after a day")
			}
		})
	}
}

// TestANameAtTheEndOfItsDay: a key is used again when it has expired and its record still exists.
func TestANameAtTheEndOfItsDay(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		first := c.mustName("a", 1)
		c.away(idempotency.Retention)
		if again := c.mustName("a", 1); slices.Equal(first, again) {
			t.Error("it is remembered")
		}
	})
}

func TestANameAtTheSameTime(t *testing.T) {
	for _, count := range []int{1, 300} {
		synctest.Test(t, func(t *testing.T) {
			c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
			c.start(Options{})
			second := c.replica()
			var mu sync.Mutex
			var answers [][]string
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					ids, err := []*cloud{c, second}[i%2].named(t.Context(), "a", "d", count)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						answers = append(answers, ids)
					} else if farm.CodeOf(err) != farm.CodeRefused || count == 1 {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, ids := range answers {
				if !slices.Equal(ids, answers[0]) {
					t.Error("two answers differ")
				}
			}
			if len(answers) == 0 {
				t.Error("nobody got an answer")
			}
			time.Sleep(5 * time.Second)
			c.wantInstances(count)
			c.stop()
			second.stop()
		})
	}
}

// TestANameThatFailed: a failed request leaves no idempotency record.
func TestANameThatFailed(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.shelf.setDown(true)
		if _, err := c.named(t.Context(), "a", "d", 1); err == nil {
			t.Fatal("it started without a registry")
		}
		c.shelf.setDown(false)
		c.mustName("a", 1)
		c.wantInstances(1)
	})
}

// TestANameOfUnknownOutcome loses the store's answer to the creation, in three ways: the client
// that repeats the request gets one instance, however the first request ended.
func TestANameOfUnknownOutcome(t *testing.T) {
	for _, fault := range []storetest.Fault{storetest.LoseReply, storetest.LoseRequest, storetest.ArriveLate} {
		synctest.Test(t, func(t *testing.T) {
			backend := storetest.NewFaults(mem.New())
			c := &cloud{t: t, shelf: &shelf{}}
			st, stop := c.open(backend, Options{})
			synctest.Wait()
			backend.Next(fault)
			ids, err := c.named(t.Context(), "a", "d", 1)
			for range 10 {
				if err == nil {
					break
				}
				time.Sleep(time.Second)
				ids, err = c.named(t.Context(), "a", "d", 1)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			c.wantInstances(1)
			if c.state(ids[0]) != farm.Scheduling {
				t.Errorf("%v: %s is %s", fault, ids[0], c.state(ids[0]))
			}
			stop()
			_ = st.Close()
		})
	}
}

// TestANameWhoseStartDied lets the process die between the transactions of a large start: the
// created instances end, and a repeated request creates all of them.
func TestANameWhoseStartDied(t *testing.T) {
	const count = 50      // at least three transactions
	for left := range 4 { // the last one writes the response
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				durable := mem.New()
				backend := &dying{Backend: durable, left: 1 << 30, ops: 20}
				c := &cloud{t: t, shelf: &shelf{}}
				st, stop := c.open(backend, Options{})
				synctest.Wait()
				backend.mu.Lock()
				backend.left = left
				backend.mu.Unlock()
				if _, err := c.named(t.Context(), "a", "d", count); err == nil {
					t.Fatal("it answered when it was dead")
				}
				time.Sleep(20 * time.Minute) // until it has stopped trying to end them
				stop()
				_ = st.Close()
				c.backend = durable
				c.start(Options{})
				defer func() { c.stop() }()
				c.mustName("a", count)
				time.Sleep(time.Minute)
				c.wantInstances(count)
			})
		})
	}
}

func TestTooManyNames(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		const most, mostBytes = 400, 1 << 20
		limited := Options{Limits: admission.Limits{IdempotencyKeys: most}, maxAnswerBytes: mostBytes}
		c.stop()
		c.start(limited)
		fill := func(caller string, n, size, together int) {
			t.Helper()
			answer, _ := json.Marshal(string(make([]byte, size)))
			var changes []store.Change
			for i := range n {
				kept := &record.IdempotencyRecord{
					Caller: caller, Digest: "d", Answer: answer, At: c.now().Add(time.Duration(i) * time.Millisecond),
				}
				changes = append(changes, store.Put(c.tables.Idempotency, fmt.Sprintf("%06d", i), kept, store.Any))
			}
			for some := range slices.Chunk(changes, together) {
				if err := c.store.Commit(t.Context(), some...); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill("", most, 1, record.TxnChanges)
		wantBusy(t, "Limit of 400 stored requests with an Idempotency-Key reached "+
			"(setting SVC_MAX_IDEMPOTENCY_KEYS); leave the key out, or try again in a few minutes",
			func() error { _, err := c.named(t.Context(), "a", "d", 1); return err })
		time.Sleep(2 * reconcile.SweepInterval)
		synctest.Wait()
		if n := c.tables.Idempotency.Len(); n != most/2 {
			t.Errorf("%d names are kept", n)
		}
		if _, _, ok := c.tables.Idempotency.Get(fmt.Sprintf("%06d", most-1)); !ok {
			t.Error("the newest one went")
		}
		c.stop()
		time.Sleep(idempotency.Retention)
		c.start(limited)
		time.Sleep(2 * reconcile.SweepInterval)
		fill("somebody", most/2/4, 2<<10, 1) // fewer than one caller may have, and six times that as JSON
		time.Sleep(2 * reconcile.SweepInterval)
		synctest.Wait()
		bytes := 0
		for _, k := range c.tables.Idempotency.All() {
			bytes += len(k.Answer)
		}
		if most := farm.CallerShare(mostBytes); bytes > most || bytes < most/2 {
			t.Errorf("%d bytes are kept", bytes)
		}
	})
}

// TestANamedSave sends two saves with one idempotency key.
func TestANamedSave(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("mac-1", 1)
		id := c.mustStart(StartRequest{})[0]
		a.say(a.take("start"), "running")
		ask := idempotency.Request{ID: "s", Digest: "d"}
		save := func() (string, error) {
			return c.Saves.Create(idempotency.WithRequest(t.Context(), ask),
				saves.Request{SaveOptions: farm.SaveOptions{InstanceID: id, Tag: "new", NewTemplateName: "saved"}})
		}
		request, err := save()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := save(); err == nil || errors.Is(err, store.ErrConflict) {
			t.Error("the second one:", err)
		}
		answer, ok, err := c.Idempotency.Lookup(t.Context(), &ask, true)
		if err != nil || !ok || string(answer) != `{"request_id":"`+request+`"}` {
			t.Errorf("%s %t %v", answer, ok, err)
		}
	})
}
