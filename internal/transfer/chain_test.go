package transfer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/reflink"
	"github.com/buildyard/buildyard/internal/transfer"
)

// shelf is a registry that can only be pulled from: one disk, as a chain of layers.
type shelf struct {
	*httptest.Server
	contents [][]byte // of the disk, after each layer
	tips     []string
	layers   map[string][]byte // by root: whole layer files
	file     api.PullFile
	bulk     atomic.Int64                        // sent bytes of layers
	disturb  atomic.Pointer[func(*http.Request)] // called before each range
}

// memory is a disk in memory that does not know its holes.
type memory struct{ *bytes.Reader }

func (m memory) NextData(off int64) (start, end int64, err error) { return off, m.Size(), nil }

func newShelf(t *testing.T, contents ...[]byte) *shelf {
	t.Helper()
	s := &shelf{
		contents: contents, layers: map[string][]byte{},
		file: api.PullFile{Name: "disk.img", Kind: api.FileDisk, Format: "raw"},
	}
	for i, c := range contents {
		stored := make([]byte, 0, len(c)) // it grows seldom: the race detector is slow with copies
		o := blob.EncodeOptions{Kind: blob.KindDisk, Size: int64(len(c))}
		keep := func(_ blob.Frame, _ int64, p []byte) error { stored = append(stored, p...); return nil }
		encode := func() (*blob.Index, error) { return blob.Encode(t.Context(), memory{bytes.NewReader(c)}, o, keep) }
		if i > 0 {
			encode = func() (x *blob.Index, err error) {
				if o.Parent, err = blob.ParseDigest(s.tips[i-1]); err != nil {
					return nil, err
				}
				disk, below := memory{bytes.NewReader(c)}, memory{bytes.NewReader(contents[i-1])}
				return blob.EncodeChanges(t.Context(), blob.Compare(disk, below, o.Size), o, keep)
			}
		}
		x, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		root := x.Digest().String()
		s.layers[root] = append(stored, x.IndexAndFooter()...)
		s.tips = append(s.tips, x.ChainID().String())
		s.file.Size = o.Size
		s.file.Layers = append(s.file.Layers, api.PullLayer{
			Root: root, Size: x.FileSize(), IndexOffset: x.StoredBytes(), IndexLength: int64(len(x.Encoded())),
			URLs: []string{"/registry/v2/blob/" + root},
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /registry/v2/pull", func(w http.ResponseWriter, _ *http.Request) {
		m := api.PullManifest{
			ID: templateID, Name: "chain", Config: json.RawMessage(`{}`),
			Files: []api.PullFile{s.file},
		}
		_ = json.NewEncoder(w).Encode(api.Envelope[api.PullManifest]{Status: api.StatusOK, Body: m})
	})
	mux.HandleFunc("GET /registry/v2/blob/{root}", func(w http.ResponseWriter, r *http.Request) {
		if d := s.disturb.Load(); d != nil {
			(*d)(r)
		}
		http.ServeContent(&counting{w, &s.bulk}, r, "", time.Time{}, bytes.NewReader(s.layers[r.PathValue("root")]))
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// squash replaces the chain by one layer with some content, like a registry does.
func (s *shelf) squash(t *testing.T, content []byte) (root string, file []byte) {
	t.Helper()
	var stored []byte
	tip, err := blob.ParseDigest(s.tips[len(s.tips)-1])
	if err != nil {
		t.Fatal(err)
	}
	o := blob.EncodeOptions{Kind: blob.KindDisk, Size: int64(len(content)), Squashes: tip}
	x, err := blob.Encode(t.Context(), memory{bytes.NewReader(content)},
		o, func(_ blob.Frame, _ int64, p []byte) error {
			stored = append(stored, p...)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	root = x.Digest().String()
	s.file.Layers = []api.PullLayer{{
		Root: root, Tip: tip.String(), Size: x.FileSize(), IndexOffset: x.StoredBytes(),
		IndexLength: int64(len(x.Encoded())),
		URLs:        []string{"/registry/v2/blob/" + root},
	}}
	s.layers[root] = append(stored, x.IndexAndFooter()...)
	return root, s.layers[root]
}

// TestForgedIndexOfASquashedLayer: the name of a squashed layer's content does not depend on its bytes, so that
// only the digest of its index detects another content that is served in its place.
func TestForgedIndexOfASquashedLayer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	one, two, forged := make([]byte, 1<<20), make([]byte, 1<<20), make([]byte, 1<<20)
	for _, content := range [][]byte{one, two, forged} {
		noise(rnd, content)
	}
	s := newShelf(t, one, two)
	root, whole := s.squash(t, two)
	pull := func() (string, error) {
		dir := t.TempDir()
		_, err := s.pull(t.Context(), t, transfer.PullOptions{Dir: dir})
		return filepath.Join(dir, "disk.img"), err
	}
	path, err := pull()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, two) {
		t.Fatalf("the disk is another one, %v", err)
	}
	forgedRoot, other := s.squash(t, forged)
	s.file.Layers[0].Root, s.file.Layers[0].URLs = root, []string{"/registry/v2/blob/" + forgedRoot}
	if len(other) != len(whole) {
		t.Fatalf("%d bytes are forged, %d are right", len(other), len(whole))
	}
	path, err = pull()
	if err == nil || !strings.Contains(err.Error(), "does not match its digest") {
		t.Errorf("pull of a forged layer: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the forged disk is there")
	}
}

type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (s *shelf) pull(ctx context.Context, t *testing.T, o transfer.PullOptions) (transfer.PullResult, error) {
	t.Helper()
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, MaxAttempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o.Ref = transfer.VersionRef{ID: templateID}
	return c.Pull(ctx, o)
}

// keep writes the disk's content after a layer into a raw file.
func (s *shelf) keep(t *testing.T, layer int) diskfile.Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprint("held", layer))
	if err := os.WriteFile(path, s.contents[layer], 0o600); err != nil {
		t.Fatal(err)
	}
	return diskfile.Disk{Path: path, Format: "raw"}
}

// mustRead compares a disk with its expected content; sizes of overlays are in sectors.
func mustRead(t *testing.T, d diskfile.Disk, want []byte) {
	t.Helper()
	open, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if rest := open.Size() - int64(len(want)); rest < 0 || rest >= 512 || rest > 0 && len(d.Overlays) == 0 {
		t.Fatalf("the disk has %d bytes instead of %d", open.Size(), len(want))
	}
	got := make([]byte, len(want))
	if _, err := open.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		t.Fatalf("the disk differs at %d", at)
	}
}

// noise fills a slice with what does not compress.
func noise(rnd *rand.Rand, to []byte) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], rnd.Uint64())
	_, _ = rand.NewChaCha8(seed).Read(to)
}

// grow makes the next content of a disk: some blocks rewritten, some zeroed, another size.
func grow(rnd *rand.Rand, before []byte, size int) []byte {
	after := make([]byte, size)
	copy(after, before)
	for range 40 {
		at := rnd.IntN(size)
		n := min(1+rnd.IntN(1<<(8+rnd.IntN(12))), size-at)
		if rnd.IntN(3) == 0 {
			clear(after[at : at+n])
			continue
		}
		noise(rnd, after[at:at+n])
	}
	return after
}

// TestPullOfChains: whatever of a chain is here, and in whatever form, the disk that is built is the right one.
func TestPullOfChains(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	contents := [][]byte{grow(rnd, nil, 3<<20)}
	blocks := []int{3 << 20, 2<<20 + 4096, 4 << 20, 4<<20 + 77}
	odd := []int{3<<20 + 1000, 2<<20 + 1000, 4<<20 + 4096, 4<<20 + 77}
	for _, sizes := range [][]int{blocks, odd} {
		c := contents
		for _, size := range sizes {
			c = append(c, grow(rnd, c[len(c)-1], size))
		}
		pullOfChain(t, c, sizes[0]%blob.BlockSize == 0)
	}
}

// pullOfChain pulls a disk with nothing, and with the content of each of its lower layers here.
func pullOfChain(t *testing.T, contents [][]byte, inBlocks bool) {
	t.Helper()
	s := newShelf(t, contents...)
	top := len(contents) - 1
	for held := -1; held < top; held++ {
		for _, overlays := range []bool{false, true} {
			o := transfer.PullOptions{
				Dir: t.TempDir(), AllowOverlays: overlays, LocalContent: map[string]diskfile.Disk{},
			}
			for i := range held + 1 {
				o.LocalContent[s.tips[i]] = s.keep(t, i)
			}
			before := s.bulk.Load()
			result, err := s.pull(t.Context(), t, o)
			if err != nil {
				t.Fatal(err)
			}
			built := diskfile.Disk{Path: filepath.Join(o.Dir, "disk.img")}
			want := transfer.BuiltFile{Name: "disk.img", Form: transfer.FormFlat, ChainID: s.tips[top]}
			if overlays && held >= 0 && result.Files[0].Form == transfer.FormOverlay {
				want.Form, want.ParentChainID = transfer.FormOverlay, s.tips[held]
				built = diskfile.Disk{Path: o.LocalContent[s.tips[held]].Path, Overlays: []string{built.Path}}
			}
			if len(result.Files) != 1 || result.Files[0] != want {
				t.Errorf("%d layers held: built %+v instead of %+v", held+1, result.Files, want)
			}
			if moved := s.bulk.Load() - before; moved != result.TransferredBytes {
				t.Errorf("%d layers held: %d bytes moved, the result says %d", held+1, moved, result.TransferredBytes)
			}
			mustRead(t, built, contents[top])
			if overlays && held >= 0 && inBlocks && !clones(t) && built.Overlays == nil {
				t.Errorf("%d layers held: no overlay was made", held+1)
			}
			if left, _ := os.ReadDir(o.Dir); len(left) != 2 { // config.json
				t.Errorf("left are %v", left)
			}
		}
	}
}

// clones reports whether files of a test can be cloned.
func clones(t *testing.T) bool {
	t.Helper()
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.WriteFile("a", make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := dir.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return reflink.CloneAt(a, dir, "b") == nil
}

// TestOverlaysOnOverlays: a disk of several files is built upon, until they are too many.
func TestOverlaysOnOverlays(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	contents := [][]byte{grow(rnd, nil, 3<<20)}
	for range transfer.MaxOverlays + 1 {
		contents = append(contents, grow(rnd, contents[len(contents)-1], 3<<20))
	}
	if clones(t) {
		t.Skip("the file system clones, so that no overlay is made on a flat disk")
	}
	s := newShelf(t, contents...)
	disk, all := s.keep(t, 0), s.file
	for n := 2; n <= len(contents); n++ {
		s.file.Layers, s.file.Size = all.Layers[:n], int64(len(contents[n-1])) // as if the rest did not exist yet
		o := transfer.PullOptions{
			Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]diskfile.Disk{s.tips[n-2]: disk},
		}
		result, err := s.pull(t.Context(), t, o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(o.Dir, "disk.img")
		form := transfer.FormOverlay
		if disk.Overlays = append(disk.Overlays, path); len(disk.Overlays) > transfer.MaxOverlays {
			form, disk = transfer.FormFlat, diskfile.Disk{Path: path}
		}
		if result.Files[0].Form != form {
			t.Errorf("layer %d was built as %+v", n, result.Files[0])
		}
		mustRead(t, disk, contents[n-1])
	}
}

// TestOverlayContinues: an interrupted pull of an overlay fetches only the rest, and one onto another base starts
// again.
func TestOverlayContinues(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	base := make([]byte, 80<<20)
	after := bytes.Clone(base)
	noise(rnd, after[:70<<20])
	s := newShelf(t, base, after)
	o := transfer.PullOptions{
		Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]diskfile.Disk{s.tips[0]: s.keep(t, 0)},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ranges atomic.Int64
	stop := func(*http.Request) {
		// Two indexes, one range for each of four connections; one more means that a range is done.
		if ranges.Add(1) == 7 {
			cancel()
			panic(http.ErrAbortHandler)
		}
	}
	s.disturb.Store(&stop)
	if _, err := s.pull(ctx, t, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.disturb.Store(nil)
	result, err := s.pull(t.Context(), t, o)
	if err != nil {
		t.Fatal(err)
	}
	if result.TransferredBytes > 65<<20 {
		t.Errorf("%d bytes moved again", result.TransferredBytes)
	}
	built := diskfile.Disk{Path: filepath.Join(o.Dir, "disk.img")}
	if result.Files[0].Form == transfer.FormOverlay {
		built = diskfile.Disk{Path: o.LocalContent[s.tips[0]].Path, Overlays: []string{built.Path}}
	}
	mustRead(t, built, after)
}

// TestChainsThatDoNotFit: a manifest's description of a chain is verified.
func TestChainsThatDoNotFit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	a := grow(rnd, nil, 1<<20)
	b := grow(rnd, a, 1<<20)
	c := grow(rnd, b, 1<<20)
	for name, spoil := range map[string]func(f *api.PullFile){
		"no layers": func(f *api.PullFile) { f.Layers = nil },
		"too many layers": func(f *api.PullFile) {
			f.Layers = append(make([]api.PullLayer, blob.MaxChainLayers), f.Layers...)
		},
		"a layer left out":     func(f *api.PullFile) { f.Layers = append(f.Layers[:1], f.Layers[2]) },
		"no base":              func(f *api.PullFile) { f.Layers = f.Layers[1:] },
		"another order":        func(f *api.PullFile) { f.Layers[1], f.Layers[2] = f.Layers[2], f.Layers[1] },
		"another tip":          func(f *api.PullFile) { f.Layers[1].Tip = f.Layers[0].Root },
		"another size":         func(f *api.PullFile) { f.Size++ },
		"no addresses":         func(f *api.PullFile) { f.Layers[1].URLs = nil },
		"an index too long":    func(f *api.PullFile) { f.Layers[1].IndexLength = blob.MaxIndexSize + 1 },
		"an index of no bytes": func(f *api.PullFile) { f.Layers[1].IndexLength = 0 },
		"a root that is none":  func(f *api.PullFile) { f.Layers[2].Root = strings.Repeat("x", 64) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, a, b, c)
			spoil(&s.file)
			dir := t.TempDir()
			if _, err := s.pull(t.Context(), t, transfer.PullOptions{Dir: dir}); err == nil {
				t.Fatal("it was pulled")
			}
			if _, err := os.Stat(filepath.Join(dir, "disk.img")); err == nil {
				t.Fatal("the file has its name")
			}
		})
	}
}

// TestDamagedLocalDiskIsRemoved: a disk that is not as it should be is not built upon.
func TestDamagedLocalDiskIsRemoved(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	a := grow(rnd, nil, 1<<20)
	b := grow(rnd, a, 1<<20)
	s := newShelf(t, a, b)
	short := s.keep(t, 0)
	if err := os.Truncate(short.Path, 1000); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]diskfile.Disk{
		"gone":         {Path: filepath.Join(t.TempDir(), "gone")},
		"short":        short,
		"a directory":  {Path: t.TempDir()},
		"overlay gone": {Path: s.keep(t, 0).Path, Overlays: []string{"gone"}},
	} {
		for _, tip := range s.tips {
			o := transfer.PullOptions{
				Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]diskfile.Disk{tip: d},
			}
			result, err := s.pull(t.Context(), t, o)
			if err != nil || result.Files[0].Form != transfer.FormFlat {
				t.Fatalf("%s: %+v, %v", name, result.Files, err)
			}
			mustRead(t, diskfile.Disk{Path: filepath.Join(o.Dir, "disk.img")}, b)
		}
	}
}

// TestIndexesTogether: a chain whose indexes would exhaust the memory is refused before any of them is fetched.
func TestIndexesTogether(t *testing.T) {
	rnd := rand.New(rand.NewPCG(12, 12))
	a := grow(rnd, nil, 1<<20)
	s := newShelf(t, a, grow(rnd, a, 1<<20))
	for i := range s.file.Layers {
		s.file.Layers[i].IndexLength = blob.MaxChainIndexSize/2 + 1
	}
	_, err := s.pull(t.Context(), t, transfer.PullOptions{Dir: t.TempDir()})
	if farm.CodeOf(err) != farm.CodeRefused ||
		!strings.Contains(err.Error(), "stored in 2 layers whose indexes have 64.0 MiB together") {
		t.Errorf("%v", err)
	}
}
