package catalog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowFiles: slow files take a bounded time together; after that every file still has the usual one.
func TestSlowFiles(t *testing.T) {
	var s slowFiles
	if got := s.timeout(time.Minute); got != time.Minute {
		t.Errorf("the first file has %s", got)
	}
	if got := s.timeout(time.Millisecond); got != time.Millisecond {
		t.Errorf("a shorter limit is %s", got)
	}
	s.add(quickFileTime) // as most files
	s.add(quickFileTime + slowFilesTime - time.Second)
	if got := s.timeout(time.Minute); got != quickFileTime+time.Second {
		t.Errorf("the last slow file has %s", got)
	}
	s.add(time.Hour)
	if got := s.timeout(time.Minute); got != quickFileTime {
		t.Errorf("files after that have %s", got)
	}
}

// TestSlowTree: a tree whose files all take too long ends.
func TestSlowTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const files = 100
		r := &scanRun{options: Options{FileTimeout: time.Minute}}
		began := time.Now()
		for range files {
			_, _, odd, err := r.runExtractor(t.Context(), slowExtractor{}, nil, wantedFile{path: "x"})
			if err == nil || odd {
				t.Fatalf("%v, %v", odd, err)
			}
		}
		if took, want := time.Since(began), files*quickFileTime+slowFilesTime+time.Minute; took > want {
			t.Errorf("%s, want at most %s", took, want)
		}
	})
}

// slowExtractor ends with its time.
type slowExtractor struct{ Extractor }

func (slowExtractor) Extract(ctx context.Context, _ *File) ([]Package, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
