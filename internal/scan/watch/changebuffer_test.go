package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// after returns what is delivered for some changes: f file, d directory, g gone.
func after(limit int, news ...string) []string {
	g := newChangeBuffer([]string{"/"})
	if limit > 0 {
		g.maxChanges = limit
	}
	for _, n := range news {
		what, path, _ := strings.Cut(n, " ")
		g.add(path, map[string]ChangeKind{"f": FileChanged, "d": DirChanged, "g": Removed}[what])
	}
	var out []string
	for _, c := range g.takeAll() {
		out = append(out, c.Kind.String()[:1]+" "+c.Path)
	}
	return out
}

func TestGather(t *testing.T) {
	for _, c := range []struct{ news, want string }{
		{"f /a/b, f /a/b, f /a/c", "f /a/b, f /a/c"},
		{"f /a, g /a, f /b, f /a", "f /b, f /a"},
		{"f /a, f /b, g /a", "f /b, g /a"},
		{"d /a, f /a/b, g /a/c, d /a/d", "d /a"},
		{"f /a/b, d /a, f /ab", "d /a, f /ab"},
		{"g /a/b/c, g /a/b, g /a", "g /a"},
		{"g /a, g /a/b, f /a/c", "g /a, f /a/c"},
		{"g /a, d /a/b, d /a, f /a/b/c", "d /a"},
		{"d /a, g /a, d /b, f /b/c", "g /a, d /b"},
		{"f /x, d /", "d /"},
		{"d /a, f /a/b, f /a", "d /a"},
	} {
		got := strings.ReplaceAll(strings.Join(after(0, strings.Split(c.news, ", ")...), ", "), "d ", "f ")
		want := strings.ReplaceAll(c.want, "d ", "f ") // "file" and "directory" begin alike
		if got != want {
			t.Errorf("%s: %s, want %s", c.news, got, want)
		}
	}
}

func TestGatherCollapsesWhereMostHappened(t *testing.T) {
	var news []string
	for i := range 90 {
		news = append(news, fmt.Sprintf("f /users/p/node_modules/m%d/package.json", i))
	}
	news = append(news, "f /etc/one", "g /usr/lib/two", "f /users/q/three")
	for i := range 90 {
		news = append(news, fmt.Sprintf("f /tmp/f%d", i))
	}
	got := after(100, news...)
	for _, want := range []string{"f /etc/one", "g /usr/lib/two", "f /users/q/three", "f /users/p/node_modules"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// TestGatherIsBoundedAndCovers adds random changes and checks what is delivered: within the limit,
// each path once, and every change is there or part of a directory's.
func TestGatherIsBoundedAndCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newChangeBuffer([]string{"/r", "/s/t"})
		g.maxChanges = rapid.IntRange(4, 40).Draw(t, "limit")
		last := map[string]ChangeKind{}
		part := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			path := rapid.SampledFrom([]string{"/r", "/s/t"}).Draw(t, "root")
			for _, p := range rapid.SliceOfN(part, 1, 5).Draw(t, "path") {
				path += "/" + p
			}
			what := ChangeKind(rapid.IntRange(1, 3).Draw(t, "what"))
			g.add(path, what)
			last[path] = what
			if len(g.byPath) > g.maxChanges || len(g.changes) > 2*g.maxChanges+1 {
				t.Fatalf("%d changes wait", len(g.changes))
			}
		}
		got := map[string]ChangeKind{}
		for _, c := range g.takeAll() {
			if got[c.Path] != 0 || c.Kind == 0 {
				t.Fatalf("%v comes twice", c)
			}
			if !isWithin("/r", c.Path) && !isWithin("/s/t", c.Path) {
				t.Fatalf("%v is outside", c)
			}
			got[c.Path] = c.Kind
		}
		for path, what := range last {
			if !told(got, path, what) {
				t.Fatalf("%v %s is lost in %v", what, path, got)
			}
		}
	})
}

// told reports whether a change is delivered: itself, or a directory above that is walked, gone, or
// a file now.
func told(got map[string]ChangeKind, path string, what ChangeKind) bool {
	if w := got[path]; w == what || w == DirChanged {
		return true
	}
	for p := parentPath(path); p != ""; p = parentPath(p) {
		if got[p] == DirChanged || got[p] == Removed || got[p] == FileChanged {
			return true
		}
	}
	return false
}

func TestGatherWaitsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newChangeBuffer([]string{"/"})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Hour)
			for i := range 10 {
				g.add(fmt.Sprintf("/f%d", i), FileChanged)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		began := time.Now()
		batch, err := g.nextBatch(ctx)
		if took := time.Since(began); err != nil || len(batch) != 10 || took != time.Hour+gatherDelay {
			t.Errorf("%d in %v: %v", len(batch), took, err)
		}
		g.add("/kept", FileChanged)
		go func() { time.Sleep(time.Millisecond); cancel() }()
		if _, err := g.nextBatch(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if batch, err := g.nextBatch(t.Context()); err != nil || len(batch) != 1 {
			t.Errorf("what waited when a context ended is lost: %v %v", batch, err)
		}
		g.close()
		if _, err := g.nextBatch(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestDelivered checks the number of the last event whose changes were delivered.
func TestDelivered(t *testing.T) {
	g := newChangeBuffer([]string{"/"})
	g.add("/a", FileChanged)
	g.setLastAdded(7)
	if n := g.deliveredEvent(); n != 0 {
		t.Errorf("%d, before anything was", n)
	}
	g.takeAll()
	g.add("/b", FileChanged)
	g.setLastAdded(9)
	if n := g.deliveredEvent(); n != 7 {
		t.Errorf("%d, want 7", n)
	}
	g.takeAll()
	g.setLastAdded(12) // its events were unwanted
	if n := g.deliveredEvent(); n != 12 {
		t.Errorf("%d, want 12", n)
	}
}

func TestScope(t *testing.T) {
	s, err := newWatchConfig(&Options{
		Roots: []string{"/a/b/", "/a/b/c", "/x"}, Exclude: func(p string) bool { return p == "/a/b/left" },
		PackageDirs: []string{"/p", "/p/q"},
	})
	if err != nil || !slices.Equal(s.roots, []string{"/a/b", "/x"}) || !slices.Equal(s.PackageDirs, []string{"/p"}) {
		t.Fatal(s.roots, s.PackageDirs, err)
	}
	for path, want := range map[string]bool{
		"/a/b": true, "/a/b/c/d": true, "/a": false, "/a/bc": false, "/": false,
		"/a/b/left": false, "/a/b/left/x": false, "/x": true,
	} {
		if s.isWatched(path) != want {
			t.Errorf("seen(%s) is not %v", path, want)
		}
	}
	for path, want := range map[string]string{
		"/a": "/a/b", "/": "/a/b /x", "/y": "", "/a/b/c": "/a/b/c", "/a/b/left/x": "",
	} {
		g := newChangeBuffer(s.roots)
		s.addDirChange(g, path, Removed)
		var got []string
		for _, c := range g.takeAll() {
			got = append(got, c.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is told as %v, want %s", path, got, want)
		}
	}
}

func TestCache(t *testing.T) {
	c := newCache[int](8)
	for i := range 100 {
		c.put([]byte{byte(i)}, i)
		if v, ok := c.get([]byte{0}); !ok || v != 0 {
			t.Fatal("what is used all the time is forgotten")
		}
		if len(c.young)+len(c.old) > 8 {
			t.Fatal("too much is remembered")
		}
	}
	if _, ok := c.get([]byte{1}); ok {
		t.Error("nothing is forgotten")
	}
	c.clear()
	if _, ok := c.get([]byte{0}); ok {
		t.Error("it is still there")
	}
}
