package catalog

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"
)

// A file that needs no room is read while all of it is taken and larger ones wait.
func TestRoom(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whoever waits gives up
	r := &reading{room: semaphore.NewWeighted(room), claims: newClaims(nil), report: &progress{}, shelf: newShelf(usual)}
	r.read(ctx, wanted{path: "small"})
	if r.result.Read != 1 {
		t.Error("a small file waited for room")
	}
}
