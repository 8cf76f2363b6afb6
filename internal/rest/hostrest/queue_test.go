package hostrest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Reports wait for each other, but neither for long nor behind many.
func TestReportsWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Access: Access{Listen: "127.0.0.1:1"}})
		must(t, err)
		for range maxReports {
			if !s.takeReport(t.Context()) {
				t.Fatal("there is room")
			}
		}
		got := make(chan bool, maxQueue)
		for range maxQueue {
			go func() { got <- s.takeReport(t.Context()) }()
		}
		synctest.Wait()
		if s.takeReport(t.Context()) {
			t.Error("too many wait")
		}
		leave(s.reports)
		if !<-got {
			t.Error("the first does not get the place")
		}
		began := time.Now()
		for range maxQueue - 1 {
			if <-got || time.Since(began) > queueTime {
				t.Error("there is no place, and it waits for long")
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if s.takeReport(gone) {
			t.Error("who left gets a place")
		}
	})
}
