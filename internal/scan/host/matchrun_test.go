package host

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// matchErr returns a bench with a database, and a match run on it.
func matchErr(t *testing.T) (*bench, *matchRun) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vuln.db")
	database(t, path, time.Now(), "a")
	b := newBench(t, func(o *Options) { o.Database.Path = path })
	db, err := vulndb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return b, &matchRun{host: b.Host, vulnDB: db, changes: &changeCollector{}, startedAt: b.monotonicNow()}
}

// put catalogs packages as if a file contained them.
func (b *bench) put(file string, list ...catalog.Package) {
	b.t.Helper()
	_, err := b.inventory.Put(inventorydb.Batch{
		Files: []inventorydb.File{{Path: file, Stamp: 1, Packages: list}}, Time: b.monotonicNow(),
		CurrentStamp: func(string) (uint64, bool) { return 1, true },
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) allJudged() {
	b.t.Helper()
	if list, err := b.inventory.AwaitingMatch(10); err != nil || len(list) > 0 {
		b.t.Errorf("%d packages wait still, %v", len(list), err)
	}
}

// TestMatchingEnds: a pod that comes after pods were matched is matched too, and more pods than are
// matched together do not block matching indefinitely.
func TestMatchingEnds(t *testing.T) {
	b, j := matchErr(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pod := func(i int) catalog.Package {
		return catalog.Package{Kind: catalog.Pod, Name: fmt.Sprint("P", i), Version: "1.0"}
	}
	b.put("a/Podfile.lock", pod(1))
	if err := j.matchProducts(ctx); err != nil {
		t.Fatal(err)
	}
	b.put("b/Podfile.lock", pod(2))
	if err := j.matchWaiting(ctx); err != nil {
		t.Fatal(err)
	}
	b.allJudged()

	j.maxTogether = 2
	b.put("c/Podfile.lock", pod(3), pod(4), pod(5), pod(6), pod(7))
	if err := j.matchWaiting(ctx); err != nil {
		t.Fatal(err)
	}
	b.allJudged()
}

// TestWhatComesWhileEverythingIsChecked: a caller that finds a match running leaves the rest to it.
func TestWhatComesWhileEverythingIsChecked(t *testing.T) {
	b, _ := matchErr(t)
	b.until("the first look", func() bool { return !b.Status().Database.MatchedBuilt.IsZero() })
	b.matchMu.Lock()
	b.put("node_modules/a/package.json", catalog.Package{Kind: catalog.NPM, Name: "a", Version: "1.0.0"})
	s := &changeCollector{}
	if err := b.match(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := b.endMatching(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.allJudged()
	if s.counts.Findings != 1 {
		t.Errorf("%+v", s.counts)
	}
}
