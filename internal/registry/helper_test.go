package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	idA = "aaaaaaaa-0000-4000-8000-000000000001"
	idB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// quickDir is a directory in memory, where the system offers that, for tests that sync thousands of times and
// simulate no power loss.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "registry-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func open(t testing.TB, base string, clock *clock) *Registry {
	t.Helper()
	r, err := Open(context.Background(), Options{Base: base, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // a test may close it before
	return r
}

// content is a file to be pushed, made from a text so that equal texts are equal layers.
type content struct {
	spec   api.PushFile
	index  *blob.Index
	frames []blob.PartFrame
	stored []byte
}

type source struct{ *bytes.Reader }

func (s source) NextData(off int64) (int64, int64, error) { return off, s.Size(), nil }

func makeContent(name, kind, text string) content { return makeContentAs(name, kind, text, false) }

// makeContentAs is makeContent; summed: with sums of decoded frames.
func makeContentAs(name, kind, text string, summed bool) content {
	data := bytes.Repeat([]byte(text+"\x01"), 30000)
	c := content{spec: api.PushFile{Name: name, Kind: kind, Size: int64(len(data))}}
	k := blob.KindDisk
	if kind == api.FileState {
		k = blob.KindState
	}
	x, err := blob.Encode(context.Background(), source{bytes.NewReader(data)},
		blob.EncodeOptions{Kind: k, Size: c.spec.Size, Workers: 1, DecodedSums: summed},
		func(f blob.Frame, _ int64, stored []byte) error {
			c.frames = append(c.frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
			c.stored = append(c.stored, stored...)
			return nil
		})
	if err != nil {
		panic(err)
	}
	c.index = x
	return c
}

func (c content) part() io.Reader {
	return io.MultiReader(bytes.NewReader(blob.PartHeader(c.frames)), bytes.NewReader(c.stored))
}

func (c content) root() string { return c.index.Digest().String() }

func request(id, tag string, files ...content) api.PushRequest {
	req := api.PushRequest{ID: id, Name: "template " + id[:1], Tag: tag, Config: json.RawMessage(`{"ram":"1G"}`)}
	for _, f := range files {
		req.Files = append(req.Files, f.spec)
	}
	return req
}

// push carries a push out as a client does.
func push(r *Registry, req api.PushRequest, files ...content) (api.PushResult, error) {
	ctx := context.Background()
	for attempt := 0; ; attempt++ {
		s, err := r.Negotiate(ctx, req)
		if err != nil {
			return api.PushResult{}, err
		}
		roots, err := send(r, s, files)
		if err != nil {
			return api.PushResult{}, err
		}
		result, err := r.CommitPush(ctx, s.Session, api.PushCommit{Roots: roots})
		if err == nil || farm.CodeOf(err) != farm.CodeConflict || attempt == 2 {
			return result, err
		}
	}
}

func send(r *Registry, s api.PushSession, files []content) (map[string]string, error) {
	roots := map[string]string{}
	for i, f := range files {
		roots[f.spec.Name] = f.root()
		if s.Files[i].State == api.PushExists {
			continue
		}
		if len(s.Files[i].Have) == 0 {
			if err := r.PutPart(context.Background(), s.Session, f.spec.Name, 0, f.part()); err != nil {
				return nil, err
			}
		}
		if err := r.PutIndex(context.Background(), s.Session, f.spec.Name, f.root(),
			bytes.NewReader(f.index.Encoded())); err != nil {
			return nil, err
		}
	}
	return roots, nil
}

func mustPush(t testing.TB, r *Registry, req api.PushRequest, files ...content) api.PushResult {
	t.Helper()
	result, err := push(r, req, files...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// tags returns the versions of a template as text: "v1 v2", or "none" if the template does not exist.
func tags(r *Registry, id string) string {
	d, err := r.TemplateDetail(id)
	if err != nil {
		return "none"
	}
	var out []string
	for _, v := range d.Versions {
		out = append(out, v.Tag)
	}
	return strings.Join(out, " ")
}

// verifyAll checks what every state of a store must hold: all versions can be pulled, every layer is whole.
func verifyAll(r *Registry) error {
	if damaged := r.Status().Damaged; len(damaged) > 0 {
		return fmt.Errorf("damaged: %+v", damaged)
	}
	for _, item := range r.ListTemplates() {
		d, err := r.TemplateDetail(item.ID)
		if err != nil {
			return err
		}
		for _, v := range d.Versions {
			if err := verifyVersion(r, item.ID, v); err != nil {
				return fmt.Errorf("template %s version %d: %w", item.ID, v.Number, err)
			}
		}
	}
	return nil
}

func verifyVersion(r *Registry, id string, v api.TemplateVersion) error {
	m, err := r.Manifest(context.Background(), VersionRef{ID: id, Number: &v.Number})
	if err != nil {
		return err
	}
	if m.ContentID != v.ContentID || (v.NVRAM != "") != (len(m.NVRAM) > 0) {
		return errors.New("manifest and list differ")
	}
	text, err := os.ReadFile(filepath.Join(r.dir.Base(), layout.TemplatesDir, id, fmt.Sprint(v.Number), "images"))
	if err != nil || string(text) != strings.Join(append(v.Images, ""), "\n") {
		return fmt.Errorf("file images says %q: %w", text, err)
	}
	for _, f := range m.Files {
		for _, l := range f.Layers {
			root, err := blob.ParseDigest(l.Root)
			if err != nil {
				return err
			}
			file, err := r.OpenBlob(context.Background(), l.Root)
			if err != nil {
				return err
			}
			layer, err := blob.OpenLayer(file, l.Size, root)
			if err == nil {
				err = layer.Verify(context.Background())
			}
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// layerFiles returns the names in images_dir and state_file_dir.
func layerFiles(t testing.TB, base string) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{layout.ImagesDir, layout.StateFileDir} {
		entries, err := os.ReadDir(filepath.Join(base, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
	}
	return out
}

// noise is a disk of incompressible data.
func noise(t *testing.T, seed uint64, size int) content {
	t.Helper()
	l := blobtest.Make(t, blob.KindDisk, seed, size)
	f := content{
		spec: api.PushFile{Name: "disk.img", Kind: api.FileDisk, Size: int64(size)}, index: l.Index,
		stored: l.Frames,
	}
	for i := range l.Index.FrameCount() {
		frame := l.Index.Frame(i)
		f.frames = append(f.frames, blob.PartFrame{StoredSize: frame.StoredSize, Sum: frame.Sum})
	}
	return f
}
