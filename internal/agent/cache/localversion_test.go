package cache_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/transfer"
)

// shelf is a registry and a cache of its versions.
type shelf struct {
	t      *testing.T
	server *httptest.Server
	client *transfer.Client
	core   *registry.Registry
	dir    string // of the cache
	cache  *cache.Cache
	id     string // of the template
	free   int64  // free bytes of the cache's disk when it is empty; 0: asks the system
}

func newShelf(t *testing.T, free int64) *shelf {
	s := &shelf{t: t, dir: t.TempDir(), free: free}
	s.server, s.client, s.core = serve(t)
	source := cache.NewRegistry(transfer.Options{}, nil)
	t.Cleanup(func() { _ = source.Close() })
	o := cache.Options{Dir: s.dir, Source: source, Reserve: bytesize.DiskReserve{Bytes: mib}}
	if free > 0 {
		o.DiskSpace = func() (int64, int64, error) { return s.free - s.cache.UsedBytes(), s.free, nil }
	}
	s.cache = open(t, o)
	return s
}

// noise creates a file of mibs MiB that does not compress.
func noise(t *testing.T, name string, seed byte, mibs int) string {
	t.Helper()
	data := make([]byte, mibs*mib)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// push publishes a version of these files and returns its reference for a start.
func (s *shelf) push(tag string, roots map[string]string, paths ...string) cache.Ref {
	s.t.Helper()
	config, err := json.Marshal(api.TemplateConfig{
		HardDrives: []api.ConfigDrive{{File: filepath.Base(paths[0]), Format: "raw"}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	o := transfer.PushOptions{
		Request:      api.PushRequest{ID: s.id, Name: "debian", Tag: tag, Config: config},
		LayerDigests: roots,
	}
	for _, p := range paths {
		name := filepath.Base(p)
		o.Files = append(o.Files, transfer.PushFile{Name: name, Path: p, Kind: api.FileDisk, ChainID: roots[name]})
	}
	got, err := s.client.Push(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.id = got.ID
	return cache.Ref{
		Registry: s.server.URL, TemplateID: got.ID, Name: "debian", Tag: tag, Version: got.Number,
		ContentID: got.ContentID,
	}
}

func (s *shelf) fetch(ref cache.Ref) {
	s.t.Helper()
	if err := s.cache.Fetch(s.t.Context(), ref, nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) file(ref cache.Ref, name string) string {
	return filepath.Join(s.dir, ref.ContentID, name)
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

// TestVersionsShareFiles: the second version pulls its delta alone, its space is counted once, and
// it stays complete when the first one is removed.
func TestVersionsShareFiles(t *testing.T) {
	s := newShelf(t, 0)
	roots := map[string]string{}
	base, delta := noise(t, "disk.img", 1, 4), noise(t, "disk.1.qcow2", 2, 1)
	first := s.push("v1", roots, base)
	second := s.push("v2", roots, base, delta)
	s.fetch(first)
	s.fetch(second)
	if !sameFile(t, s.file(first, "disk.img"), s.file(second, "disk.img")) {
		t.Error("the base of the second version is another file")
	}
	if used := s.cache.UsedBytes(); used < 5*mib || used > 5*mib+64<<10 {
		t.Errorf("%d bytes used, want about 5 MiB", used)
	}
	again := open(t, cache.Options{Dir: s.dir, Source: &source{}})
	if used := again.UsedBytes(); used != s.cache.UsedBytes() {
		t.Errorf("%d bytes used after a restart, %d before", used, s.cache.UsedBytes())
	}
	v, err := again.Version(second.ContentID)
	if err != nil || v.Files["disk.img"].ChainID != roots["disk.img"] ||
		v.Files["disk.1.qcow2"].ChainID != roots["disk.1.qcow2"] || v.Ref != second {
		t.Errorf("version %+v, %v, want roots %v", v, err, roots)
	}
	if err := s.cache.Remove(first.ContentID); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile(base)
	if got, err := os.ReadFile(s.file(second, "disk.img")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the base is %d bytes, %v, after the first version went", len(got), err)
	}
}

// crowded returns a shelf of 9 MiB, of which 1 is reserved. Its cache has the first version of a
// template and another one, which was used later; the second version shares 4 of its 6 MiB with the
// first.
func crowded(t *testing.T) (s *shelf, first, second, other cache.Ref) {
	t.Helper()
	s = newShelf(t, 9*mib)
	roots := map[string]string{}
	base, delta := noise(t, "disk.img", 1, 4), noise(t, "disk.1.qcow2", 2, 2)
	first = s.push("v1", roots, base)
	second = s.push("v2", roots, base, delta)
	other = s.push("other", map[string]string{}, noise(t, "other.img", 3, 3))
	s.fetch(first)
	s.fetch(other)
	return s, first, second, other
}

// TestSharedVersionIsNoSpace: a version that a pull links to is not evicted for that pull; another
// version is, although it was used later.
func TestSharedVersionIsNoSpace(t *testing.T) {
	s, first, second, other := crowded(t)
	s.fetch(second)
	if !s.cache.Has(first.ContentID) || s.cache.Has(other.ContentID) || !s.cache.Has(second.ContentID) {
		t.Errorf("left are %+v", s.cache.List())
	}
	if err := s.cache.Remove(first.ContentID); err != nil {
		t.Errorf("the first version is still held: %v", err)
	}
	s.cache.Pin(second.ContentID, "vm")
	if err := s.cache.Fetch(t.Context(), other, nil); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("without room: %v", err)
	}
}

// TestRevertedNumberIsOtherBytes: after a revert and a push of the same tag and number, a node gets
// the new content, whatever it has cached under that number.
func TestRevertedNumberIsOtherBytes(t *testing.T) {
	s := newShelf(t, 0)
	old := s.push("v1", map[string]string{}, noise(t, "disk.img", 1, 2))
	s.fetch(old)
	if err := s.client.Revert(t.Context(), transfer.VersionRef{ID: s.id}); err != nil {
		t.Fatal(err)
	}
	path := noise(t, "disk.img", 2, 2)
	fresh := s.push("v1", map[string]string{}, path)
	if fresh.Version != old.Version || fresh.Tag != old.Tag || fresh.ContentID == old.ContentID {
		t.Fatalf("pushed %+v, then %+v", old, fresh)
	}
	s.fetch(fresh)
	want, _ := os.ReadFile(path)
	if got, err := os.ReadFile(s.file(fresh, "disk.img")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the new version has other bytes than were pushed, %v", err)
	}
}

// TestAdopt: a version that was made on this node is listed without a pull, adopting it twice has
// no further effect, and a failure leaves nothing that prevents a pull.
func TestAdopt(t *testing.T) {
	s := newShelf(t, 0)
	roots := map[string]string{}
	base, delta := noise(t, "disk.img", 1, 2), noise(t, "disk.1.qcow2", 2, 1)
	first := s.push("v1", roots, base)
	second := s.push("v2", roots, base, delta)
	s.fetch(first)
	a := cache.LocalVersion{
		Ref: second, Config: []byte(`{"name":"x"}`), NVRAM: []byte("variables"),
		Files: map[string]cache.File{
			"disk.img": {ChainID: roots["disk.img"]}, "disk.1.qcow2": {ChainID: roots["disk.1.qcow2"]},
		},
		Paths: map[string]string{"disk.img": s.file(first, "disk.img"), "disk.1.qcow2": delta},
	}
	bad := a
	bad.Paths = map[string]string{"disk.img": "/nonexistent"}
	if err := s.cache.AddLocal(t.Context(), bad); err == nil || s.cache.Has(second.ContentID) {
		t.Fatalf("a file that is not there: %v", err)
	}
	bad.Paths = map[string]string{"../x": delta}
	if err := s.cache.AddLocal(t.Context(), bad); farm.CodeOf(err) != farm.CodeInvalid {
		t.Fatalf("a name that is a path: %v", err)
	}
	s.server.Close()
	for range 2 {
		if err := s.cache.AddLocal(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	s.fetch(second)
	v, err := s.cache.Version(second.ContentID)
	if err != nil || string(v.NVRAM) != "variables" || string(v.Config) != `{"name":"x"}` {
		t.Errorf("version %+v, %v", v, err)
	}
	if _, err := os.Stat(delta); err != nil {
		t.Errorf("the file that was linked is gone: %v", err)
	}
	if !sameFile(t, delta, s.file(second, "disk.1.qcow2")) ||
		!sameFile(t, s.file(first, "disk.img"), s.file(second, "disk.img")) {
		t.Error("the files were copied")
	}
}

// TestLinkIsNoProgress: what an interrupted pull has linked uses no space, so it does not count as
// pulled.
func TestLinkIsNoProgress(t *testing.T) {
	s, first, second, other := crowded(t)
	part := filepath.Join(s.dir, second.ContentID+".partial")
	if err := os.Mkdir(part, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(s.file(first, "disk.img"), filepath.Join(part, "disk.img")); err != nil {
		t.Fatal(err)
	}
	s.fetch(second)
	if s.cache.Has(other.ContentID) {
		t.Error("no room was made")
	}
}

// TestPullDuringAFailingAdoption: a start that arrives while a version is being adopted pulls it
// when the adoption fails.
func TestPullDuringAFailingAdoption(t *testing.T) {
	c := open(t, cache.Options{Dir: t.TempDir(), Source: &source{}})
	for i := range 300 {
		v := ref(fmt.Sprintf("v%d-0", i))
		var adopting sync.WaitGroup
		adopting.Go(func() {
			_ = c.AddLocal(t.Context(),
				cache.LocalVersion{Ref: v, Config: []byte("{}"), Paths: map[string]string{"disk": "/nonexistent"}})
		})
		if err := c.Fetch(t.Context(), v, nil); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		adopting.Wait()
	}
}
