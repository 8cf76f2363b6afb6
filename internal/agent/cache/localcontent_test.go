package cache_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// chained is a source whose versions are based on each other.
type chained struct {
	below map[string]string // content ID -> the one that it is based on
	links map[string]string // content ID -> the one with the same content
}

func (s *chained) SpaceNeed(_ context.Context, ref cache.Ref, have cache.LocalContent) (cache.SpaceNeed, error) {
	for _, id := range []string{s.links[ref.ContentID], s.below[ref.ContentID]} {
		if _, here := have["tip "+id]; here {
			return cache.SpaceNeed{Bytes: mib, ChainIDs: []string{"tip " + id}}, nil
		}
	}
	return cache.SpaceNeed{Bytes: mib}, nil
}

func (s *chained) Fetch(_ context.Context, p cache.Pull) (map[string]cache.BuiltFile, error) {
	id := p.Ref.ContentID
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(p.DestDir, name), []byte(text), 0o600)
	}
	if err := write("config.json", "{}"); err != nil {
		return nil, err
	}
	if from, here := p.Local["tip "+s.links[id]]; here {
		files := append([]string{from.Path}, from.Overlays...)
		built := map[string]cache.BuiltFile{"disk": {ChainID: "tip " + s.links[id], Form: transfer.FormLinked}}
		return built, os.Link(files[len(files)-1], filepath.Join(p.DestDir, "disk"))
	}
	b := cache.BuiltFile{ChainID: "tip " + id, Format: "raw"}
	if _, here := p.Local["tip "+s.below[id]]; here {
		b.Form, b.BaseChainID = transfer.FormOverlay, "tip "+s.below[id]
	}
	return map[string]cache.BuiltFile{"disk": b}, write("disk", id)
}

// contents reads the files of a version's disk, the lowest first.
func contents(t testing.TB, c *cache.Cache, id string) string {
	t.Helper()
	v, err := c.Version(id)
	if err != nil {
		t.Fatal(err)
	}
	d := v.Disks["disk"]
	var all []string
	for _, path := range append([]string{d.Path}, d.Overlays...) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	if d.Format != "raw" {
		t.Errorf("%s is %+v", id, d)
	}
	return strings.Join(all, " ")
}

func ids(c *cache.Cache) string {
	var list []string
	for _, v := range c.List() {
		list = append(list, v.ContentID)
	}
	return strings.Join(list, " ")
}

func fetchAll(t testing.TB, c *cache.Cache, list ...string) {
	t.Helper()
	for _, id := range list {
		if err := c.Fetch(t.Context(), ref(id), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersionsOnEachOther: a version stays as long as another one is based on it, the leaves are
// evicted first whatever was used least recently, and all of this outlives a restart.
func TestVersionsOnEachOther(t *testing.T) {
	s := &chained{below: map[string]string{"v2": "v1", "v3": "v2"}, links: map[string]string{"v4": "v2"}}
	o := cache.Options{Dir: t.TempDir(), Source: s}
	free := int64(0)
	o.DiskSpace = func() (int64, int64, error) { return free, 1 << 40, nil }
	c := open(t, o)
	free = 1 << 30
	fetchAll(t, c, "v1", "v2", "v3", "v4")
	for id, want := range map[string]string{"v1": "v1", "v2": "v1 v2", "v3": "v1 v2 v3", "v4": "v1 v2"} {
		if got := contents(t, c, id); got != want {
			t.Errorf("%s is made of %q, want %q", id, got, want)
		}
	}
	c = open(t, o)
	if got := contents(t, c, "v3") + "; " + contents(t, c, "v4"); got != "v1 v2 v3; v1 v2" {
		t.Errorf("after a restart: %q", got)
	}
	for _, id := range []string{"v1", "v2"} {
		if err := c.Remove(id); farm.CodeOf(err) != farm.CodeRefused ||
			!strings.Contains(err.Error(), "uses its disk") {
			t.Errorf("%s can be removed: %v", id, err)
		}
	}
	c.Pin("v4", "vm")
	free = 0
	gone := func() string {
		_ = c.EnsureFreeSpace(t.Context(), 1)
		return ids(c)
	}
	if got := gone(); got != "v1 v4" { // v3 before v2, which is based on v1, which v4 is based on
		t.Errorf("left are %s", got)
	}
	if got := contents(t, c, "v4"); got != "v1 v2" {
		t.Errorf("what is held is made of %q", got)
	}
	c.Unpin("v4", "vm")
	if got := gone(); got != "" {
		t.Errorf("left are %s", got)
	}
}

// TestLeafGoesFirst: of a chain, the leaf is evicted although it was used last.
func TestLeafGoesFirst(t *testing.T) {
	s := &chained{below: map[string]string{"v2": "v1"}}
	var c *cache.Cache
	o := cache.Options{Dir: t.TempDir(), Source: s, DiskSpace: func() (int64, int64, error) {
		return 10 - int64(len(c.List())), 10, nil
	}}
	c = open(t, cache.Options{Dir: o.Dir, Source: s})
	fetchAll(t, c, "v1", "v2")
	c = open(t, o)
	if err := c.EnsureFreeSpace(t.Context(), 9); err != nil || ids(c) != "v1" {
		t.Errorf("left are %s, %v", ids(c), err)
	}
}

// TestMissingBaseVersion: a version that is based on a missing version or on itself is removed, and nothing
// else is changed.
func TestMissingBaseVersion(t *testing.T) {
	s := &chained{below: map[string]string{"v2": "v1", "v3": "v2", "v5": "v4"}}
	o := cache.Options{Dir: t.TempDir(), Source: s}
	fetchAll(t, open(t, o), "v1", "v2", "v3", "v4", "v5")
	if err := os.RemoveAll(filepath.Join(o.Dir, "v1")); err != nil {
		t.Fatal(err)
	}
	if got := ids(open(t, o)); got != "v4 v5" {
		t.Errorf("left are %s", got)
	}
	fact := filepath.Join(o.Dir, "v4", "version.json")
	b, err := os.ReadFile(fact)
	if err != nil {
		t.Fatal(err)
	}
	loop := strings.Replace(string(b), `"format":"raw"`, `"format":"raw","below":{"content_id":"v5","file":"disk"}`, 1)
	if err := os.WriteFile(fact, []byte(loop), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ids(open(t, o)); got != "" {
		t.Errorf("left are %s", got)
	}
}

// TestAdoptOverlay: a save is based on the version that it was made of; not on one that was
// removed, and not on too many overlays.
func TestAdoptOverlay(t *testing.T) {
	o := cache.Options{Dir: t.TempDir(), Source: &chained{}}
	c := open(t, o)
	fetchAll(t, c, "v0")
	delta := filepath.Join(t.TempDir(), "delta")
	if err := os.WriteFile(delta, []byte("save"), 0o600); err != nil {
		t.Fatal(err)
	}
	adopt := func(id, on string) error {
		return c.AddLocal(t.Context(), cache.LocalVersion{
			Ref: ref(id), Config: []byte("{}"), Paths: map[string]string{"disk": delta},
			Files: map[string]cache.File{"disk": {ChainID: "tip " +
				id, Format: "raw", Base: &cache.BaseFile{ContentID: on, FileName: "disk"}}},
		})
	}
	for _, on := range []string{"none", "../v0"} {
		if err := adopt("v1", on); err == nil || c.Has("v1") {
			t.Fatalf("adopted on %s", on)
		}
	}
	for i := range transfer.MaxOverlays {
		if err := adopt(fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := contents(t, c, "v2"); got != "v0 save save" {
		t.Errorf("the second save is made of %q", got)
	}
	if err := adopt("v99", fmt.Sprintf("v%d", transfer.MaxOverlays)); err == nil {
		t.Error("a chain grows without end")
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "*.partial")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestChainsStayWhole: whatever is pulled, pinned, unpinned and removed, each listed version can be
// read.
func TestChainsStayWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &chained{below: map[string]string{}, links: map[string]string{}}
		for i := 1; i < 8; i++ {
			which := []map[string]string{s.below, s.below, s.links}[rapid.IntRange(0, 2).Draw(rt, "kind")]
			which[fmt.Sprintf("v%d", i)] = fmt.Sprintf("v%d", rapid.IntRange(0, i-1).Draw(rt, "from"))
		}
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		var c *cache.Cache
		room := rapid.IntRange(1, 6).Draw(rt, "room")
		o := cache.Options{Dir: dir, Source: s}
		limited := o
		limited.DiskSpace = func() (int64, int64, error) { return int64(room-len(c.List())) * mib, 1 << 40, nil }
		c = open(t, o)
		c = open(t, limited)
		pinned := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			id := fmt.Sprintf("v%d", rapid.IntRange(0, 7).Draw(rt, "id"))
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				_ = c.Fetch(t.Context(), ref(id), nil)
			case 2:
				pinned[id] = !pinned[id]
				if pinned[id] {
					c.Pin(id, "vm")
				} else {
					c.Unpin(id, "vm")
				}
				pinned[id] = pinned[id] && c.Has(id)
			case 3:
				_ = c.Remove(id)
			case 4:
				c = open(t, limited)
				for id := range pinned {
					c.Pin(id, "vm")
					pinned[id] = c.Has(id)
				}
			}
			list := strings.Fields(ids(c))
			for _, id := range list {
				if got := strings.Fields(contents(t, c, id)); len(got) == 0 {
					rt.Fatalf("%s is made of nothing", id)
				}
			}
			for id, held := range pinned {
				if held && !slices.Contains(list, id) {
					rt.Fatalf("%s is held and gone", id)
				}
			}
		}
	})
}
