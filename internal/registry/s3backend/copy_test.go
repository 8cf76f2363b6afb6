package s3backend_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/registry/s3backend"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

// copyStorage copies the storage in a directory into the bucket of a site.
func (s *site) copyStorage(ctx context.Context, dir string) (s3backend.CopyReport, error) {
	o := s.server.Options()
	o.Prefix = "site/one"
	return s3backend.Copy(ctx, filepath.Join(s.base, dir), o, func(s3backend.CopyProgress) {})
}

// TestCopy: a copy that is interrupted anywhere is completed by another one, and a registry serves the result.
func TestCopy(t *testing.T) {
	s := newSite(t)
	disk, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "disk")})
	if err != nil {
		t.Fatal(err)
	}
	mustPush(t, disk, idA, "v1", newDisk(t, 1, 1<<20))
	mustPush(t, disk, idA, "v2", newDisk(t, 2, 17<<20))
	mustPush(t, disk, idB, "v1", newDisk(t, 2, 17<<20))
	if err := errors.Join(disk.Delete(t.Context(), idB), disk.Close()); err != nil {
		t.Fatal(err)
	}
	var n, sent, stop atomic.Int64
	s.server.SetFault(func(r *http.Request) s3test.Fault {
		if r.URL.Query().Has("partNumber") && !strings.Contains(r.URL.Path, "selftest") {
			sent.Add(1)
		}
		if limit := stop.Load(); limit > 0 && n.Add(1) >= limit {
			return s3test.Fault{Status: http.StatusForbidden}
		}
		return s3test.Fault{}
	})
	for stop.Store(16); ; stop.Add(4) {
		n.Store(0)
		if _, err := s.copyStorage(t.Context(), "disk"); err == nil {
			break
		}
		if stop.Load() > 400 {
			t.Fatal("the copy never ends")
		}
	}
	if got := sent.Load(); got > 8 {
		t.Errorf("%d parts were sent for a layer of 4", got)
	}
	stop.Store(0)
	report, err := s.copyStorage(t.Context(), "disk")
	if err != nil || report.CopiedBytes != 0 || report.Versions != 2 || report.Layers != 2 {
		t.Errorf("a repeated copy: %+v, %v", report, err)
	}
	r := s.open("one")
	if got := tags(r, idA) + ", " + tags(r, idB); got != "v1 v2, none" {
		t.Errorf("copied: %s", got)
	}
	if err := verify(r); err != nil {
		t.Error(err)
	}
	if !r.PushTargetFor(idB, false).Deleted {
		t.Error("the deleted template is forgotten")
	}
	if err := errors.Join(r.SetArch(t.Context(), idA, "amd64"), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.copyStorage(t.Context(), "disk"); err == nil || !strings.Contains(err.Error(), "owned") {
		t.Errorf("a copy over a template that a registry changed: %v", err)
	}
}

// TestCopyWhileTheStorageChanges: a template that changes during the copy is left out, and copied by the next one.
func TestCopyWhileTheStorageChanges(t *testing.T) {
	s := newSite(t)
	source, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "disk")})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	mustPush(t, source, idA, "v1", newDisk(t, 1, 1<<20))
	var once sync.Once
	o := s.server.Options()
	o.Prefix = "site/one"
	report, err := s3backend.Copy(t.Context(), filepath.Join(s.base, "disk"), o, func(s3backend.CopyProgress) {
		once.Do(func() { mustPush(t, source, idA, "v2", newDisk(t, 2, 1<<20)) })
	})
	if err != nil || report.Changed != 1 || report.Versions != 0 {
		t.Errorf("while it changed: %+v, %v", report, err)
	}
	report, err = s.copyStorage(t.Context(), "disk")
	if err != nil || report.Changed != 0 || report.Versions != 2 {
		t.Errorf("afterwards: %+v, %v", report, err)
	}
	r := s.open("one")
	if got := tags(r, idA); got != "v1 v2" {
		t.Errorf("copied: %s", got)
	}
	if err := verify(r); err != nil {
		t.Error(err)
	}
}

// TestCopyKeepsWhatTheBucketAcknowledged: also when the storage has as many changes since the last copy.
func TestCopyKeepsWhatTheBucketAcknowledged(t *testing.T) {
	s := newSite(t)
	source, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "disk")})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	mustPush(t, source, idA, "v1", newDisk(t, 1, 1<<20))
	if _, err := s.copyStorage(t.Context(), "disk"); err != nil {
		t.Fatal(err)
	}
	r := s.open("one")
	mustPush(t, r, idA, "bucket", newDisk(t, 2, 1<<20))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	mustPush(t, source, idA, "disk", newDisk(t, 3, 1<<20))
	mustPush(t, source, idA, "disk2", newDisk(t, 4, 1<<20))
	if _, err := s.copyStorage(t.Context(), "disk"); err == nil || !strings.Contains(err.Error(), "owned") {
		t.Errorf("a copy over another version: %v", err)
	}
	if got := tags(s.open("two"), idA); got != "v1 bucket" {
		t.Errorf("the bucket has %s", got)
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"s3://b": "b|", "s3://b/": "b|", "s3://b/p/q/": "b|p/q", "b/p": "", "s3:///p": "", "": "",
	} {
		bucket, prefix, err := s3backend.ParseURL(text)
		if got := bucket + "|" + prefix; err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestCopyReplacesADamagedLayer: a layer that the registry of the bucket has found damaged is sent again.
func TestCopyReplacesADamagedLayer(t *testing.T) {
	s := newSite(t)
	source, err := registry.Open(t.Context(), registry.Options{Base: filepath.Join(s.base, "disk")})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	d := newDisk(t, 1, 1<<20)
	mustPush(t, source, idA, "v1", d)
	if _, err := s.copyStorage(t.Context(), "disk"); err != nil {
		t.Fatal(err)
	}
	name := d.root() + layout.LayerSuffix
	key := "site/one/images_dir/" + name
	s.server.Set(key, make([]byte, len(s.server.Get(key))))
	s.server.Set("site/one/trash_dir/1-damaged-"+name, []byte(`{"key":"images_dir/`+name+`"}`))
	if report, err := s.copyStorage(t.Context(), "disk"); err != nil || report.CopiedBytes == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if left := s.server.Keys("site/one/trash_dir/"); len(left) != 0 {
		t.Errorf("markers: %v", left)
	}
	if err := verify(s.open("one")); err != nil {
		t.Error(err)
	}
}
