package watch

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience limits the wait of a test for expected changes. No result depends on time.
const patience = 30 * time.Second

// wanted is what the tests' catalogs hold.
func wanted(name string) bool { return strings.HasSuffix(name, ".json") || name == "METADATA" }

// catalogue is the state of a caller: the wanted files below some roots, maintained by nothing but
// the changes it receives.
type catalogue struct {
	t *testing.T

	mu    sync.Mutex
	files map[string]bool
	all   []Change
	most  int // of a batch
}

// take applies a batch.
func (c *catalogue) take(batch []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = max(c.most, len(batch))
	seen := map[string]bool{}
	for _, n := range batch {
		if seen[n.Path] {
			c.t.Errorf("%s comes twice in a batch", n.Path)
		}
		seen[n.Path] = true
		if n.Path != filepath.Clean(n.Path) || !filepath.IsAbs(n.Path) {
			c.t.Errorf("%q is not an absolute clean path", n.Path)
		}
		c.one(n)
	}
	c.all = append(c.all, batch...)
}

// changes returns the changes since the last call of forget. More may come at any time.
func (c *catalogue) changes() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// largestBatch returns the size of the largest batch.
func (c *catalogue) largestBatch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

func (c *catalogue) one(n Change) {
	if delete(c.files, n.Path); !wanted(n.Path) { // no directory of the tests has the name of a file
		maps.DeleteFunc(c.files, func(p string, _ bool) bool { return isWithin(n.Path, p) })
	}
	info, err := os.Lstat(n.Path)
	switch {
	case n.Kind == FileChanged && err == nil && !info.IsDir():
		c.files[n.Path] = true
	case n.Kind == DirChanged:
		maps.Copy(c.files, listed(n.Path))
	}
}

// listed returns the wanted files of a walk.
func listed(root string) map[string]bool {
	out := map[string]bool{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && wanted(d.Name()) {
			out[path] = true
		}
		return nil
	})
	return out
}

// watched is a running watcher.
type watched struct {
	*catalogue
	w    *Watcher
	opts Options
	done chan error
}

// begin watches directories and keeps a catalog of them.
func begin(t *testing.T, o Options, tunes ...func(*testLimits)) *watched {
	t.Helper()
	if o.WantsFile == nil {
		o.WantsFile = wanted
	}
	w := &watched{catalogue: &catalogue{t: t, files: map[string]bool{}}, opts: o, done: make(chan error, 1)}
	var err error
	if w.w, err = openTuned(o, tunes...); err != nil {
		t.Fatal(err)
	}
	for _, r := range o.Roots {
		if r != "/" { // of the whole machine, tests expect single changes
			maps.Copy(w.files, listed(realPath(r)))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.done <- w.w.Run(ctx, w.take) }()
	t.Cleanup(func() {
		cancel()
		<-w.done
		if err := w.w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// openTuned is Open with other limits.
func openTuned(o Options, tunes ...func(*testLimits)) (*Watcher, error) {
	s, err := newWatchConfig(&o)
	if err != nil {
		return nil, err
	}
	for _, f := range tunes {
		f(&s.limits)
	}
	news := newChangeBuffer(s.roots)
	src, err := openSource(s, news)
	if err != nil {
		return nil, err
	}
	src.start()
	return &Watcher{source: src, buffer: news}, nil
}

// equal waits until the state has exactly the wanted files below the roots.
func (w *watched) equal() {
	w.t.Helper()
	var missing, extra []string
	ok := eventually(func() bool {
		want := map[string]bool{}
		for _, r := range w.opts.Roots {
			maps.Copy(want, listed(realPath(r)))
		}
		if w.opts.Exclude != nil {
			maps.DeleteFunc(want, func(p string, _ bool) bool { return w.opts.Exclude(filepath.Dir(p)) })
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		missing, extra = nil, nil
		for p := range want {
			if !w.files[p] {
				missing = append(missing, p)
			}
		}
		for p := range w.files {
			if !want[p] {
				extra = append(extra, p)
			}
		}
		return len(missing)+len(extra) == 0
	})
	if !ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t.Fatalf("%d are missing: %q; %d are not there any more: %q; of %d; last news %v; %v",
			len(missing), missing[:min(5, len(missing))], len(extra), extra[:min(5, len(extra))],
			len(w.files), w.all[max(0, len(w.all)-20):], w.w.Mounts())
	}
}

// expect waits for some changes since the last call of forget. Polling may report a directory
// instead of what is in it.
func (w *watched) expect(changes ...Change) {
	w.t.Helper()
	for _, c := range changes {
		if !eventually(func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.all, func(n Change) bool {
				return n == c || w.opts.Method == Poll && n.Kind == DirChanged && isWithin(n.Path, c.Path)
			})
		}) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("no %v %s in %v; %v", c.Kind, c.Path, w.all[max(0, len(w.all)-20):], w.w.Mounts())
		}
	}
}

// forget forgets the changes so far.
func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = nil
}

// eventually retries until the condition is true, and reports whether it was.
func eventually(is func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return is()
}

// put writes files.
func put(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(filepath.Dir(n), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n, []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// must fails a test.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
