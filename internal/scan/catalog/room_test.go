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
	r := &scanRun{
		memoryBudget: semaphore.NewWeighted(memoryBudgetBytes), patterns: newPatternTable(nil), progress: &progress{},
		packages: newPackageSet(defaultLimits),
	}
	r.readFile(ctx, wantedFile{path: "small"})
	if r.result.FilesRead != 1 {
		t.Error("a small file waited for room")
	}
}
