package s3backend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/registry/s3backend"
	"github.com/buildyard/buildyard/internal/s3store"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

const (
	idA = "aaaaaaaa-0000-4000-8000-000000000001"
	idB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// site is a bucket and the working directories of registries.
type site struct {
	t      *testing.T
	server *s3test.Server
	real   *s3store.Options // nil: the server in memory
	base   string
	lease  time.Duration
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, server: s3test.Start(t), base: t.TempDir(), lease: 5 * time.Second}
	if o, ok := s3test.RealOptions(); ok {
		s.real = &o
	}
	return s
}

func (s *site) tryOpen(ctx context.Context, dir string) (*registry.Registry, *s3backend.Backend, error) {
	o := s.server.Options()
	if o.Prefix = "site/one"; s.real != nil {
		o = *s.real
	}
	o.LeaseDuration, o.MaxAttemptsPerAction = s.lease, 2
	b, err := s3backend.New(o)
	if err != nil {
		return nil, nil, err
	}
	r, err := registry.Open(ctx, registry.Options{
		Base: filepath.Join(s.base, dir), Version: "test", Address: "http://" + dir,
		Backend: b,
	})
	return r, b, err
}

func (s *site) open(dir string) *registry.Registry {
	s.t.Helper()
	r, _, err := s.tryOpen(s.t.Context(), dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() }) // a test may close it before
	return r
}

// disk is a disk of random data to be pushed.
type disk struct {
	spec  api.PushFile
	layer blobtest.Layer
}

func newDisk(t testing.TB, seed uint64, size int) disk {
	t.Helper()
	return disk{
		api.PushFile{Name: "disk.img", Kind: api.FileDisk, Size: int64(size)},
		blobtest.Make(t, blob.KindDisk, seed, size),
	}
}

func (d disk) root() string { return d.layer.Index.Digest().String() }

// parts returns the parts of the disk with their offsets.
func (d disk) parts() (list []io.Reader, offsets []int64) {
	const framesPerPart = 4
	x := d.layer.Index
	for first := 0; first < x.FrameCount(); first += framesPerPart {
		var frames []blob.PartFrame
		var stored []byte
		for i := first; i < min(first+framesPerPart, x.FrameCount()); i++ {
			f := x.Frame(i)
			frames = append(frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
			stored = append(stored, d.layer.Frames[f.Offset:f.Offset+int64(f.StoredSize)]...)
		}
		list = append(list, io.MultiReader(bytes.NewReader(blob.PartHeader(frames)), bytes.NewReader(stored)))
		offsets = append(offsets, x.Frame(first).Offset)
	}
	return list, offsets
}

// push carries a push out as a client does.
func push(r *registry.Registry, req api.PushRequest, d disk) (api.PushResult, error) {
	ctx := context.Background()
	req.Files, req.Config = []api.PushFile{d.spec}, json.RawMessage(`{"ram":"1G"}`)
	for attempt := 0; ; attempt++ {
		s, err := r.Negotiate(ctx, req)
		if err != nil {
			return api.PushResult{}, err
		}
		if err := send(ctx, r, s, d); err != nil {
			return api.PushResult{}, err
		}
		result, err := r.CommitPush(ctx, s.Session, api.PushCommit{Roots: map[string]string{"disk.img": d.root()}})
		if err == nil || farm.CodeOf(err) != farm.CodeConflict || attempt == 2 {
			return result, err
		}
	}
}

func send(ctx context.Context, r *registry.Registry, s api.PushSession, d disk) error {
	if s.Files[0].State == api.PushExists {
		return nil
	}
	list, offsets := d.parts()
	for i, part := range list {
		if slices.ContainsFunc(s.Files[0].Have, func(h api.PushPart) bool { return h.Offset == offsets[i] }) {
			continue
		}
		if err := r.PutPart(ctx, s.Session, "disk.img", offsets[i], part); err != nil {
			return err
		}
	}
	return r.PutIndex(ctx, s.Session, "disk.img", d.root(), bytes.NewReader(d.layer.Index.Encoded()))
}

func request(id, tag string) api.PushRequest {
	return api.PushRequest{ID: id, Name: "template " + id[:1], Tag: tag, ResumeKey: "resume " + id + tag}
}

func mustPush(t testing.TB, r *registry.Registry, id, tag string, d disk) {
	t.Helper()
	if _, err := push(r, request(id, tag), d); err != nil {
		t.Fatal(err)
	}
}

// tags returns the versions of a template as text; "none" if the template does not exist.
func tags(r *registry.Registry, id string) string {
	d, err := r.TemplateDetail(id)
	if err != nil {
		return "none"
	}
	out := []string{}
	for _, v := range d.Versions {
		out = append(out, v.Tag)
	}
	return strings.Join(out, " ")
}

// verify pulls every version and reads every frame.
func verify(r *registry.Registry) error {
	if damaged := r.Status().Damaged; len(damaged) > 0 {
		return fmt.Errorf("damaged: %+v", damaged)
	}
	for _, item := range r.ListTemplates() {
		d, err := r.TemplateDetail(item.ID)
		if err != nil {
			return err
		}
		for _, v := range d.Versions {
			m, err := r.Manifest(context.Background(), registry.VersionRef{ID: item.ID, Number: &v.Number})
			if err != nil {
				return err
			}
			for _, f := range m.Files {
				for _, l := range f.Layers {
					if err := verifyLayer(r, l); err != nil {
						return fmt.Errorf("%s %s: %w", item.ID, v.Tag, err)
					}
				}
			}
		}
	}
	return nil
}

func verifyLayer(r *registry.Registry, l api.PullLayer) error {
	root, err := blob.ParseDigest(l.Root)
	if err != nil {
		return err
	}
	f, err := r.OpenBlob(context.Background(), l.Root)
	if err != nil {
		return err
	}
	layer, err := blob.OpenLayer(f, l.Size, root)
	if err == nil {
		err = layer.Verify(context.Background())
	}
	return errors.Join(err, f.Close())
}

// TestLifeOfTemplates: what one registry has written is there for the next one, on the same machine and on another.
func TestLifeOfTemplates(t *testing.T) {
	s := newSite(t)
	r := s.open("one")
	small, large := newDisk(t, 1, 1<<20), newDisk(t, 2, 12<<20)
	mustPush(t, r, idA, "v1", small)
	mustPush(t, r, idA, "v2", large)
	mustPush(t, r, idB, "v1", large) // the layer is known
	mustPush(t, r, idB, "v2", newDisk(t, 3, 1<<20))
	if err := r.Revert(t.Context(), registry.VersionRef{ID: idB, Tag: "v2"}); err != nil {
		t.Fatal(err)
	}
	check := func(where string, r *registry.Registry, a, b string) {
		t.Helper()
		if got := tags(r, idA) + ", " + tags(r, idB); got != a+", "+b {
			t.Errorf("%s: %s", where, got)
		}
		if err := verify(r); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	check("first", r, "v1 v2", "v1")
	for _, dir := range []string{"one", "two", "one"} {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r = s.open(dir)
		check("opened in "+dir, r, "v1 v2", "v1")
	}
	if err := r.Delete(t.Context(), idA); err != nil {
		t.Fatal(err)
	}
	check("after the deletion", r, "none", "v1")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = s.open("two")
	check("after the deletion in another directory", r, "none", "v1")
	mustPush(t, r, idA, "again", small)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = s.open("three")
	check("created again", r, "again", "v1")
}

// TestCollect: what no version needs goes to the trash and out of it, and can come back before.
func TestCollect(t *testing.T) {
	s := newSite(t)
	r := s.open("one")
	keep, drop := newDisk(t, 1, 12<<20), newDisk(t, 2, 12<<20)
	mustPush(t, r, idA, "v1", keep)
	mustPush(t, r, idA, "v2", drop)
	if err := r.Revert(t.Context(), registry.VersionRef{ID: idA, Tag: "v2"}); err != nil {
		t.Fatal(err)
	}
	if gc, err := r.GC(t.Context(), registry.GCOptions{}); err != nil || gc.Layers != 1 || gc.Trash < 12<<20 {
		t.Fatalf("%+v, %v", gc, err)
	}
	mustPush(t, r, idA, "v3", drop) // from the trash
	if n := len(s.server.Keys("site/one/stream_dir/")); n != 2 {
		t.Errorf("%d layers after one came back from the trash", n)
	}
	if err := r.Revert(t.Context(), registry.VersionRef{ID: idA, Tag: "v3"}); err != nil { // no pull has leased it
		t.Fatal(err)
	}
	if _, err := r.GC(t.Context(), registry.GCOptions{EmptyTrash: true}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.server.Keys("site/one/stream_dir/")); n != 2 {
		t.Errorf("%d layers: what was deleted less than two leases ago is purged", n)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := r.GC(t.Context(), registry.GCOptions{EmptyTrash: true}); err != nil &&
			farm.CodeOf(err) != farm.CodeUnavailable {
			t.Fatal(err)
		}
		if len(s.server.Keys("site/one/trash_dir/")) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the trash is not purged")
		}
	}
	if n := len(s.server.Keys("site/one/stream_dir/")); n != 1 {
		t.Errorf("%d layers are left", n)
	}
	if err := verify(r); err != nil {
		t.Error(err)
	}
}

// TestForeignChange: a template that something else changed stops the purge, and a push meets the change.
func TestForeignChange(t *testing.T) {
	s := newSite(t)
	r := s.open("one")
	d := newDisk(t, 1, 1<<20)
	mustPush(t, r, idA, "v1", d)
	key := "site/one/vm_dir/" + idA + "/template.json"
	old := s.server.Get(key)
	mustPush(t, r, idA, "v2", newDisk(t, 2, 1<<20))
	if err := r.Revert(t.Context(), registry.VersionRef{ID: idA, Tag: "v2"}); err != nil {
		t.Fatal(err)
	}
	s.server.Set(key, old) // as an operator restores a copy
	if _, err := r.GC(t.Context(), registry.GCOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := r.GC(t.Context(), registry.GCOptions{EmptyTrash: true})
		if err != nil && strings.Contains(err.Error(), "changed in") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the purge is not stopped: %v", err)
		}
	}
	if err := r.SetArch(t.Context(), idA, "amd64"); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("a change on top of an unknown one: %v", err)
	}
	if err := r.SetArch(t.Context(), idA, "amd64"); err != nil {
		t.Errorf("a change after the registry has read the other one: %v", err)
	}
}

// TestOwner: a second registry is refused, and the first one's directory cannot be opened without the bucket.
func TestOwner(t *testing.T) {
	s := newSite(t)
	r := s.open("one")
	mustPush(t, r, idA, "v1", newDisk(t, 1, 1<<20))
	_, _, err := s.tryOpen(t.Context(), "two")
	if _, ok := errors.AsType[*s3store.OwnedError](err); !ok {
		t.Fatalf("a second registry: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"registry": func() error {
			_, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "one")})
			return err
		},
		"check": func() error {
			_, err := registry.CheckStorage(t.Context(), filepath.Join(s.base, "one"), registry.CheckOptions{})
			return err
		},
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "s3://templates/site/one/") {
			t.Errorf("%s of a working directory: %v", name, err)
		}
	}
	onDisk, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "disk")})
	if err != nil {
		t.Fatal(err)
	}
	mustPush(t, onDisk, idB, "v1", newDisk(t, 1, 1<<20))
	if err := onDisk.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.tryOpen(t.Context(), "disk"); err == nil || !strings.Contains(err.Error(), "registry copy") {
		t.Errorf("a storage on disk as a working directory: %v", err)
	}
}

// TestRequestsOfCommit: the commit of a tag takes at most five requests in addition to its data.
func TestRequestsOfCommit(t *testing.T) {
	s := newSite(t)
	s.lease = time.Minute // no renewal in between
	r := s.open("one")
	for i, size := range []int{1 << 20, 14 << 20} {
		s.server.TakeRequests()
		mustPush(t, r, idA, fmt.Sprint("v", i), newDisk(t, uint64(i), size))
		var beyond []string
		for _, q := range s.server.TakeRequests() {
			data := strings.Contains(q, "partNumber") || strings.HasPrefix(q, "PUT site/one/images_dir/") &&
				!strings.Contains(q, "@")
			if !data && !strings.HasSuffix(q, "?uploads") { // the upload begins before the commit
				beyond = append(beyond, q)
			}
		}
		t.Logf("%d bytes: %d requests: %v", size, len(beyond), beyond)
		if len(beyond) > 5 || len(beyond) == 0 {
			t.Errorf("%d bytes: %d requests", size, len(beyond))
		}
	}
}

// TestPresigned: the URL of a layer has its bytes, and is valid for layers of both forms.
func TestPresigned(t *testing.T) {
	s := newSite(t)
	r := s.open("one")
	for i, size := range []int{1 << 20, 14 << 20} {
		d := newDisk(t, uint64(i), size)
		mustPush(t, r, idA, fmt.Sprint("v", i), d)
		address := r.LayerURL(t.Context(), d.root())
		resp, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.HasPrefix(raw, d.layer.Frames) {
			t.Errorf("%s: %s, %d bytes, %v", address, resp.Status, len(raw), err)
		}
	}
	if got := r.LayerURL(t.Context(), strings.Repeat("0", 64)); got != "" {
		t.Errorf("a missing layer has the URL %s", got)
	}
}
