package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitDeliveredWaitsForSubscribers: events that were queued before the call have been delivered when it
// returns, however slow the subscribers are.
func TestWaitDeliveredWaitsForSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		go d.run()
		defer d.close()
		told := 0
		d.subscribe(func(events []Event) {
			time.Sleep(time.Second)
			told += len(events)
		})
		for range 3 {
			d.enqueue(make([]Event, 2))
			time.Sleep(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if d.waitDelivered(ctx) == nil {
			t.Error("it does not wait")
		}
		if err := d.waitDelivered(t.Context()); err != nil || told != 6 {
			t.Errorf("%d of 6 were told, %v", told, err)
		}
	})
}
