package registry

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/layout/layouttest"
)

// TestLookIsNoPull: a call of Look changes no pull time and keeps no layer.
func TestLookIsNoPull(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	c := makeContent("disk", "disk", "look")
	mustPush(t, r, request(idA, "v1", c), c)
	look, err := r.PeekManifest(t.Context(), VersionRef{ID: idA})
	must(t, err)
	if d, _ := r.TemplateDetail(idA); d.LastPull != 0 || d.Versions[0].LastPull != 0 || len(r.leasedUntil) > 0 {
		t.Errorf("%+v, %d leases", d, len(r.leasedUntil))
	}
	pull, err := r.Manifest(t.Context(), VersionRef{ID: idA})
	must(t, err)
	if d, _ := r.TemplateDetail(idA); d.LastPull != clock.Now().Unix() || len(r.leasedUntil) != 1 {
		t.Errorf("%+v, %d leases", d, len(r.leasedUntil))
	}
	if look.ContentID != pull.ContentID || look.Files[0].Layers[0].Root != pull.Files[0].Layers[0].Root {
		t.Errorf("%+v instead of %+v", look, pull)
	}
}

// TestMadeStorageIsOpened: what layouttest makes is a storage as a registry leaves one.
func TestMadeStorageIsOpened(t *testing.T) {
	base, shape := t.TempDir(), layouttest.Shape{Templates: 3, Versions: 7, Depth: 4}
	must(t, layouttest.Fill(base, shape))
	r := open(t, base, newClock())
	if damaged := r.Status().Damaged; len(damaged) > 0 {
		t.Fatalf("%+v", damaged)
	}
	report, err := r.Check(t.Context(), CheckOptions{Deep: true})
	must(t, err)
	for _, f := range report.Findings {
		if f.Layer != "" || f.Version == nil {
			t.Errorf("%+v", f)
		}
	}
	for i := range shape.Templates {
		d, err := r.TemplateDetail(layouttest.ID(i))
		must(t, err)
		if len(d.Versions) != shape.Versions || len(d.Versions[3].Images) != 4 || len(d.Versions[4].Images) != 1 {
			t.Errorf("%+v", d)
		}
	}
	if n := len(layerFiles(t, base)); n != shape.Templates*shape.Versions {
		t.Errorf("%d layers", n)
	}
	must(t, os.Remove(filepath.Join(base, layout.ImagesDir, layerFiles(t, base)[0])))
	must(t, r.Close())
	r, err = Open(t.Context(), Options{Base: base, Now: time.Now})
	must(t, err)
	defer r.Close()
	if len(r.Status().Damaged) == 0 {
		t.Error("a lost layer is not noticed")
	}
}
