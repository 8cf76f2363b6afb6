package catalog

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

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

// sized is an entry of a directory with a size.
type sized struct {
	fs.DirEntry
	fs.FileInfo
	size int64
}

func (s sized) Info() (fs.FileInfo, error) { return s, nil }
func (s sized) Size() int64                { return s.size }
func (s sized) Name() string               { return "x" }
func (s sized) IsDir() bool                { return false }

// TestMemoryWeight: what large files may take together is bounded, and one of any size may be read.
func TestMemoryWeight(t *testing.T) {
	for size, want := range map[int64]int64{
		0: 0, smallFileBytes: 0, smallFileBytes + 1: (smallFileBytes + 1) * decodedFactor, 1 << 40: memoryBudgetBytes,
	} {
		if got := memoryWeight(Patterns{}, wantedFile{entry: sized{size: size}}); got != want {
			t.Errorf("%d bytes: %d, want %d", size, got, want)
		}
		if got := memoryWeight(Patterns{PartialRead: true}, wantedFile{entry: sized{size: size}}); got != 0 {
			t.Errorf("%d bytes, of which some are read: %d", size, got)
		}
	}
}

// TestReserveMemory: a file that needs much memory has it alone until its extractor returns. One that is read as a
// whole has its part already.
func TestReserveMemory(t *testing.T) {
	budget := semaphore.NewWeighted(memoryBudgetBytes)
	f := &File{ctx: t.Context(), budget: budget}
	for range 2 {
		if err := f.ReserveMemory(); err != nil {
			t.Fatal(err)
		}
	}
	if budget.TryAcquire(1) {
		t.Error("another file has memory, too")
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, errTimeout)
	defer cancel()
	late := &File{ctx: ctx, budget: budget}
	if err := late.ReserveMemory(); !errors.Is(err, errTimeout) || !errors.Is(late.fsErr, errTimeout) {
		t.Errorf("a file without memory: %v, %v", err, late.fsErr)
	}
	late.close()
	f.close()
	if !budget.TryAcquire(memoryBudgetBytes) {
		t.Error("the memory is not released")
	}
	if err := (&File{ctx: t.Context()}).ReserveMemory(); err != nil {
		t.Errorf("a file with its part: %v", err)
	}
}
