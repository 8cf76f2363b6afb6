package catalog

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"
)

// A file outside the memory budget is read while the budget is used up and larger ones wait.
func TestSpace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a caller that waits stops
	r := &reading{
		room: semaphore.NewWeighted(room), claims: newPatternTable(nil), report: &progress{},
		packages: newPackageSet(usual),
	}
	r.read(ctx, wanted{path: "small"})
	if r.result.Read != 1 {
		t.Error("a small file waited for room")
	}
}
