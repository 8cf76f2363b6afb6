package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

const mib = 1 << 20

// unit is the unit of a source's file sizes.
const unit = 64 << 10

// source writes real files whose size is in the content ID: "v3-2" has 2 units.
type source struct {
	fetched atomic.Int32
	gate    chan struct{} // when not nil a fetch waits for it half way
	started chan struct{} // gets a value when a fetch is half way
	fail    error
}

func sizeOf(id string) int64 {
	var n, units int64
	_, _ = fmt.Sscanf(id, "v%d-%d", &n, &units)
	return units * unit
}

func (s *source) SpaceNeed(_ context.Context, ref cache.Ref, _ cache.LocalContent) (cache.SpaceNeed, error) {
	return cache.SpaceNeed{Bytes: sizeOf(ref.ContentID)}, s.fail
}

func (s *source) Fetch(ctx context.Context, p cache.Pull) (map[string]cache.BuiltFile, error) {
	s.fetched.Add(1)
	if err := os.WriteFile(filepath.Join(p.DestDir, "config.json"), []byte(`{"name":"x","cpu":{"cores":3}}`),
		0o600); err != nil {
		return nil, err
	}
	data := slices.Repeat([]byte{7}, int(sizeOf(p.Ref.ContentID)))
	if err := os.WriteFile(filepath.Join(p.DestDir, "disk"), data, 0o600); err != nil {
		return nil, err
	}
	p.Progress(0.5)
	if s.gate != nil {
		s.started <- struct{}{}
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	p.Progress(1)
	return map[string]cache.BuiltFile{"disk": {ChainID: "root of " + p.Ref.ContentID}}, nil
}

func ref(id string) cache.Ref {
	return cache.Ref{TemplateID: "t", Name: "x", Tag: "1", ContentID: id}
}

func open(t testing.TB, o cache.Options) *cache.Cache {
	t.Helper()
	c, err := cache.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestFetchThenRestart(t *testing.T) {
	s := &source{}
	o := cache.Options{Dir: t.TempDir(), Source: s}
	c := open(t, o)
	var seen []float64
	if err := c.Fetch(t.Context(), ref("v1-1"), func(p float64) { seen = append(seen, p) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []float64{0.5, 1}) {
		t.Errorf("progress was %v", seen)
	}
	s.fail = errors.New("the registry is away")
	again := open(t, o)
	if err := again.Fetch(t.Context(), ref("v1-1"), nil); err != nil {
		t.Errorf("from the cache with the registry away: %v", err)
	}
	if s.fetched.Load() != 1 || !again.Has("v1-1") || again.Has("v2-1") {
		t.Errorf("%d fetches, list %v", s.fetched.Load(), again.List())
	}
	if got := again.UsedBytes(); got < unit || got > unit+32<<10 {
		t.Errorf("%d bytes used, want about %d", got, unit)
	}
	if looked, err := cache.Inspect(o.Dir); err != nil || !slices.Equal(looked, again.List()) {
		t.Errorf("looked at %v, %v", looked, err)
	}
	config, cached, err := again.Config("v1-1")
	if err != nil || config.CPU == nil || config.CPU.Cores != 3 || cached.Dir != filepath.Join(o.Dir, "v1-1") {
		t.Errorf("config %+v in %s, %v", config, cached.Dir, err)
	}
	if _, _, err := again.Config("v9-1"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("config of a missing version: %v", err)
	}
	if err := again.Fetch(t.Context(), ref("../v1"), nil); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("an id that is a path: %v", err)
	}
}

func TestWaitersShareOnePull(t *testing.T) {
	s := &source{gate: make(chan struct{}), started: make(chan struct{}, 1)}
	c := open(t, cache.Options{Dir: t.TempDir(), Source: s})
	var told atomic.Int32
	var waiting sync.WaitGroup
	for range 5 {
		waiting.Go(func() {
			err := c.Fetch(t.Context(), ref("v1-1"), func(p float64) {
				if p == 1 {
					told.Add(1)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-s.started
	impatient, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- c.Fetch(impatient, ref("v1-1"), nil) }()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(s.gate)
	waiting.Wait()
	if n := s.fetched.Load(); n != 1 {
		t.Errorf("%d pulls for one version", n)
	}
	if told.Load() < 1 {
		t.Error("nobody was told of the progress")
	}
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	s := &source{gate: make(chan struct{}), started: make(chan struct{}, 1)}
	o := cache.Options{Dir: t.TempDir(), Source: s}
	c := open(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- c.Fetch(ctx, ref("v1-1"), nil) }()
	<-s.started
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { <-s.started; close(s.gate) }()
	if err := c.Fetch(t.Context(), ref("v1-1"), nil); err != nil {
		t.Errorf("who comes while the pull is ending gets %v, want a pull of its own", err)
	}
	if n := s.fetched.Load(); n != 2 {
		t.Errorf("%d pulls, want the cancelled one and a new one", n)
	}
}

func TestKilledBetweenSteps(t *testing.T) {
	s := &source{}
	o := cache.Options{Dir: t.TempDir(), Source: s}
	if err := open(t, o).Fetch(t.Context(), ref("v1-1"), nil); err != nil {
		t.Fatal(err)
	}
	place := func(name string) {
		if err := os.MkdirAll(filepath.Join(o.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place("v2-1.gone")    // a removal was interrupted
	place("v3-1.partial") // a pull was
	place("v4-1")         // no step leaves this: damage
	c := open(t, o)
	if list := c.List(); len(list) != 1 || list[0].ContentID != "v1-1" {
		t.Errorf("list %v, want v1-1 only", list)
	}
	left, _ := os.ReadDir(o.Dir)
	if len(left) != 2 {
		t.Errorf("left are %v, want v1-1 and the interrupted pull", left)
	}
	if err := c.RemoveStalePulls(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "v3-1.partial")); err != nil {
		t.Errorf("a fresh interrupted pull was swept: %v", err)
	}
	o.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	if err := open(t, o).RemoveStalePulls(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "v3-1.partial")); err == nil {
		t.Error("a stale interrupted pull was kept")
	}
}

func TestFailedPullIsReported(t *testing.T) {
	s := &source{fail: farm.Refused("no such tag")}
	c := open(t, cache.Options{Dir: t.TempDir(), Source: s})
	err := c.Fetch(t.Context(), ref("v1-1"), nil)
	if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "pull x 1") || c.Has("v1-1") {
		t.Errorf("got %v", err)
	}
}

// TestSpace checks the eviction rules on a disk of a fixed size: the reserve stays free, pinned
// versions stay, and what is evicted was used before everything that stays.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "cache")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		const total, reserve = 10 * unit, 2 * unit
		clock := time.Unix(1_700_000_000, 0)
		var c *cache.Cache
		c, err = cache.Open(cache.Options{
			Dir: dir, Source: &source{}, Reserve: bytesize.DiskReserve{Bytes: reserve},
			DiskSpace: func() (int64, int64, error) {
				free := int64(total)
				for _, v := range c.List() {
					free -= sizeOf(v.ContentID)
				}
				return free, total, nil
			},
			Now: func() time.Time { return clock },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held := map[string]bool{}
		used := map[string]time.Time{}
		ids := []string{"v1-1", "v2-2", "v3-3", "v4-4", "v5-5", "v6-9"}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			clock = clock.Add(time.Second)
			id := rapid.SampledFrom(ids).Draw(t, "id")
			before := c.List()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				c.Pin(id, "h")
				held[id] = true
			case 1:
				c.Unpin(id, "h")
				delete(held, id)
			default:
				checkFetch(t, c, id, held, used, total-reserve)
			}
			if c.Has(id) {
				used[id] = clock
			}
			for _, v := range before {
				if held[v.ContentID] && !c.Has(v.ContentID) {
					t.Fatalf("%s was removed and is held", v.ContentID)
				}
			}
		}
	})
}

func checkFetch(t *rapid.T, c *cache.Cache, id string, held map[string]bool, used map[string]time.Time, room int64) {
	before := c.List()
	err := c.Fetch(context.Background(), ref(id), nil)
	var sum, stuck int64
	oldest := time.Time{}
	for _, v := range c.List() {
		sum += sizeOf(v.ContentID)
		if held[v.ContentID] {
			stuck += sizeOf(v.ContentID)
		} else if v.ContentID != id && (oldest.IsZero() || used[v.ContentID].Before(oldest)) {
			oldest = used[v.ContentID]
		}
	}
	if err != nil {
		if farm.CodeOf(err) != farm.CodeRefused || stuck+sizeOf(id) <= room {
			t.Fatalf("fetch %s with %d held of %d: %v", id, stuck, room, err)
		}
		return
	}
	if !c.Has(id) || sum > room {
		t.Fatalf("after fetching %s %d bytes are used of %d", id, sum, room)
	}
	for _, v := range before {
		if !c.Has(v.ContentID) && !oldest.IsZero() && used[v.ContentID].After(oldest) {
			t.Fatalf("%s, used %s, was removed before one used %s", v.ContentID, used[v.ContentID], oldest)
		}
	}
}

// TestFreeSpace: the oldest version is evicted first, a pinned one stays, and freeing too little is
// not an error.
func TestFreeSpace(t *testing.T) {
	const total = 10 * unit
	var c *cache.Cache
	clock := time.Unix(1_700_000_000, 0)
	c = open(t, cache.Options{
		Dir: t.TempDir(), Source: &source{}, Reserve: bytesize.DiskReserve{Bytes: unit},
		Now: func() time.Time { clock = clock.Add(time.Second); return clock },
		DiskSpace: func() (int64, int64, error) {
			free := int64(total)
			for _, v := range c.List() {
				free -= sizeOf(v.ContentID)
			}
			return free, total, nil
		},
	})
	c.Pin("v1-3", "vm")
	for _, id := range []string{"v1-3", "v2-2", "v3-3"} {
		if err := c.Fetch(t.Context(), ref(id), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		bytes int64
		want  []string
	}{
		{2 * unit, []string{"v1-3", "v2-2", "v3-3"}}, // also the reserve
		{3 * unit, []string{"v1-3", "v3-3"}},
		{9 * unit, []string{"v1-3"}},
	} {
		err := c.EnsureFreeSpace(t.Context(), tt.bytes)
		var left []string
		for _, v := range c.List() {
			left = append(left, v.ContentID)
		}
		if err != nil || !slices.Equal(left, tt.want) {
			t.Errorf("room for %d: left are %v, %v, want %v", tt.bytes, left, err, tt.want)
		}
	}
}

func TestRemove(t *testing.T) {
	c := open(t, cache.Options{Dir: t.TempDir(), Source: &source{}})
	c.Pin("v1-1", "vm")
	if err := c.Fetch(t.Context(), ref("v1-1"), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("v1-1"); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("removing a version in use: %v", err)
	}
	c.Unpin("v1-1", "vm")
	if err := c.Remove("v1-1"); err != nil || c.Has("v1-1") {
		t.Errorf("removing a version: %v", err)
	}
	if err := c.Remove("v1-1"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("removing it again: %v", err)
	}
}
