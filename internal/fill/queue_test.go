package fill

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func take(t *testing.T, q *Queue, demandOnly bool) Batch {
	t.Helper()
	b, ok, err := q.Next(t.Context(), demandOnly)
	if err != nil || !ok {
		t.Fatalf("nothing to fetch: %v", err)
	}
	return b
}

// TestOrder: demand comes first, then the trace, what follows a reader, and the rest.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(Options{
			Frames: 100, Trace: []int{50, 51, 52, 53, 54, -1, 100, 60},
			IsHere: func(i int) bool { return i == 10 }, Joins: func(i int) bool { return i != 3 },
		})
		var waited sync.WaitGroup
		waited.Go(func() {
			if took, err := q.Need(t.Context(), []int{70, 10, 80}); err != nil || took <= 0 {
				t.Errorf("need: %v %v", took, err)
			}
		})
		synctest.Wait()
		for _, want := range []Batch{{Demand, 70, 71}, {Demand, 80, 81}} {
			got := take(t, q, true)
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		for _, want := range []Batch{{Trace, 50, 54}, {Trace, 54, 55}, {Trace, 60, 61}} {
			if got := take(t, q, false); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		next := make(chan Batch)
		go func() { next <- take(t, q, false) }()
		synctest.Wait()
		select {
		case b := <-next:
			t.Fatalf("%v is fetched while a guest waits", b)
		default:
		}
		q.Done(70)
		q.Done(80)
		waited.Wait()
		before := time.Now()
		if got := <-next; got != (Batch{Rest, 0, 4}) || time.Since(before) != quietTime {
			t.Errorf("the rest: %v after %v", got, time.Since(before))
		}
		if got := take(t, q, false); got != (Batch{Rest, 4, 10}) {
			t.Errorf("the rest up to what is here: %v", got)
		}
		// 71 follows 70.
		q.Return(Batch{Rest, 4, 10})
		go func() { _, _ = q.Need(t.Context(), []int{71}) }()
		synctest.Wait()
		for _, want := range []Batch{{Demand, 71, 72}, {Ahead, 72, 73}, {Ahead, 73, 74}} {
			if got := take(t, q, false); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		q.Done(71)
		synctest.Wait()
		time.Sleep(quietTime)
		if got := take(t, q, false); got != (Batch{Rest, 4, 10}) {
			t.Errorf("returned frames: %v", got)
		}
	})
}

// TestHoldRest: what a guest waits for and the trace are fetched, and the rest only after Release.
func TestHoldRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(Options{Frames: 9, Trace: []int{5}, HoldRest: true})
		go func() {
			_, _ = q.Need(t.Context(), []int{6})
			_, _ = q.Need(t.Context(), []int{7}) // 8 follows, which no boot has read
		}()
		for _, want := range []Batch{{Demand, 6, 7}, {Demand, 7, 8}, {Trace, 5, 6}} {
			synctest.Wait()
			if got := take(t, q, false); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			q.Done(want.First)
		}
		next := make(chan Batch)
		go func() { next <- take(t, q, false) }()
		time.Sleep(time.Hour)
		select {
		case b := <-next:
			t.Fatalf("%v is fetched before Release", b)
		default:
		}
		q.Release()
		if got := <-next; got != (Batch{Rest, 0, 5}) {
			t.Errorf("after Release: %v", got)
		}
	})
}

func TestNeedEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(Options{Frames: 3})
		why := errors.New("the VM is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(time.Minute)
			cancel(why)
		}()
		if took, err := q.Need(ctx, []int{1}); !errors.Is(err, why) || took != time.Minute {
			t.Errorf("%v %v", took, err)
		}
		if _, readers := q.Left(); readers != 0 {
			t.Errorf("%d readers", readers)
		}
		if got := take(t, q, true); got != (Batch{Demand, 1, 2}) { // it was asked for
			t.Errorf("got %v", got)
		}
		if _, ok, err := q.Next(ctx, true); ok || !errors.Is(err, why) {
			t.Errorf("next: %t %v", ok, err)
		}
	})
}

// TestQueueProperties: with any number of readers, workers and failures each frame is fetched by one worker at a time,
// no read ends before its frames are here, the rest waits for readers, and in the end all is here.
func TestQueueProperties(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { checkRun(t, seed) })
	}
}

func checkRun(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	n := 1 + random.IntN(60)
	initial := make([]bool, n)
	for i := range initial {
		initial[i] = random.IntN(5) == 0
	}
	o := Options{Frames: n, IsHere: func(i int) bool { return initial[i] }, Joins: func(i int) bool { return i%7 != 0 }}
	o.HoldRest = random.IntN(2) == 0
	for range random.IntN(n) {
		o.Trace = append(o.Trace, random.IntN(2*n)-n/2)
	}
	if o.PartOrder = random.Perm(Parts(n) + 1); random.IntN(2) == 0 {
		o.PartOrder = o.PartOrder[1:] // which need not have all
	}
	q := NewQueue(o)
	var mu sync.Mutex // guards the fields below
	fetching, arrived := make([]bool, n), slices.Clone(initial)
	pick := func(limit int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(limit) }
	var all sync.WaitGroup
	for worker := range 1 + pick(4) {
		all.Go(func() {
			for {
				b, ok, err := q.Next(t.Context(), worker == 1)
				if err != nil || !ok {
					return
				}
				mu.Lock()
				for i := b.First; i < b.End; i++ {
					if fetching[i] || arrived[i] {
						t.Errorf("seed %d: frame %d is fetched again", seed, i)
					}
					fetching[i] = true
				}
				mu.Unlock()
				if b.Class != Rest && b.Class != Trace && b.End != b.First+1 || b.End <= b.First {
					t.Errorf("seed %d: %v", seed, b)
				}
				time.Sleep(time.Duration(pick(300)) * time.Millisecond)
				fails := pick(4) == 0
				for i := b.First; i < b.End; i++ {
					mu.Lock()
					fetching[i] = false
					arrives := !fails || random.IntN(2) == 0
					arrived[i] = arrives
					mu.Unlock()
					if arrives {
						q.Done(i)
					}
				}
				if fails {
					q.Return(b)
				}
			}
		})
	}
	all.Go(func() {
		time.Sleep(time.Duration(pick(5000)) * time.Millisecond)
		q.Release()
	})
	for range pick(8) {
		all.Go(func() {
			for range pick(6) {
				var frames []int
				for range 1 + pick(3) {
					frames = append(frames, pick(n))
				}
				if _, err := q.Need(t.Context(), frames); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				mu.Lock()
				for _, i := range frames {
					if !arrived[i] {
						t.Errorf("seed %d: a read of frame %d ended before it was here", seed, i)
					}
				}
				mu.Unlock()
				time.Sleep(time.Duration(pick(1500)) * time.Millisecond)
			}
		})
	}
	all.Wait()
	if left, readers := q.Left(); left > 0 || readers > 0 {
		t.Errorf("seed %d: %d frames are missing, %d reads wait", seed, left, readers)
	}
}

// TestFollowsAfterManyReads: a sequential reader is followed also when many others have read before.
func TestFollowsAfterManyReads(t *testing.T) {
	q := NewQueue(Options{Frames: 2002, IsHere: func(i int) bool { return i < 2000 }, HoldRest: true})
	for i := range 600 {
		if _, err := q.Need(t.Context(), []int{3 * i}); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{1998, 1999} {
		if _, err := q.Need(t.Context(), []int{i}); err != nil {
			t.Fatal(err)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if b, ok := q.take(false); !ok || b != (Batch{Ahead, 2000, 2001}) {
		t.Errorf("%+v, %v", b, ok)
	}
}
