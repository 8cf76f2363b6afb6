package hostrest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Reports wait for each other, but neither for long nor behind many.
func TestReportsAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Access: Access{Listen: "127.0.0.1:1"}})
		must(t, err)
		for range maxReportReaders {
			if !s.acquireReportSlot(t.Context()) {
				t.Fatal("there is room")
			}
		}
		got := make(chan bool, maxQueuedReports)
		for range maxQueuedReports {
			go func() { got <- s.acquireReportSlot(t.Context()) }()
		}
		synctest.Wait()
		if s.acquireReportSlot(t.Context()) {
			t.Error("too many wait")
		}
		releaseSlot(s.reportSlots)
		if !<-got {
			t.Error("the first does not get the place")
		}
		began := time.Now()
		for range maxQueuedReports - 1 {
			if <-got || time.Since(began) > queueTimeout {
				t.Error("there is no place, and it waits for long")
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if s.acquireReportSlot(gone) {
			t.Error("who left gets a place")
		}
	})
}
