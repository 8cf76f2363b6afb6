package catalog

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// largeExtractor takes the whole memory budget, for a second of each file or until its time ends.
type largeExtractor struct {
	isSlow         bool
	running, worst *atomic.Int32
}

func (largeExtractor) Name() string             { return "large" }
func (largeExtractor) FileRequired(string) bool { return true }

func (largeExtractor) Patterns() Patterns { return Patterns{Names: []string{"x"}, PartialRead: true} }

func (e largeExtractor) Extract(ctx context.Context, f *File) ([]Package, error) {
	if err := f.ReserveMemory(); err != nil {
		return nil, err
	}
	e.worst.Store(max(e.worst.Load(), e.running.Add(1)))
	defer e.running.Add(-1)
	if !e.isSlow {
		time.Sleep(time.Second)
		return nil, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestProbeBounds: files that are probed before there is a tree share the memory, and the time of slow files, of one
// scan.
func TestProbeBounds(t *testing.T) {
	tree := fstest.MapFS{"x": {Data: []byte("1")}}
	for _, isSlow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var running, worst atomic.Int32
			s := NewSelection([]Extractor{largeExtractor{isSlow, &running, &worst}})
			info, err := fs.Stat(tree, "x")
			if wanted, partial := s.Wants("x", info); !wanted || !partial || err != nil {
				t.Fatalf("%t, %t, %v", wanted, partial, err)
			}
			const files = 100
			began := time.Now()
			var all sync.WaitGroup
			var failed atomic.Pointer[error]
			for range files {
				probe := func() {
					f, err := tree.Open("x")
					if err != nil {
						failed.Store(&err)
						return
					}
					s.Probe(t.Context(), "x", f)
				}
				if isSlow {
					probe()
				} else {
					all.Go(probe)
				}
			}
			all.Wait()
			if err := failed.Load(); err != nil {
				t.Error(errors.Join(*err))
			}
			if worst.Load() != 1 {
				t.Errorf("%d files have the whole memory at a time", worst.Load())
			}
			if took, most := time.Since(began), files*quickFileTime+slowFilesTime+time.Minute; took > most {
				t.Errorf("%s, want at most %s", took, most)
			}
		})
	}
}
