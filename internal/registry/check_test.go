package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const idC = "cccccccc-0000-4000-8000-000000000003"

// hurt is a storage with template A (v1, v2) and B (v1), which a case damages.
type hurt struct {
	base    string
	a, b, c content
	layer   func(content) string // path of its file
	in      func(parts ...string) string
}

func makeHurt(t *testing.T) *hurt {
	t.Helper()
	base := t.TempDir()
	h := &hurt{base: base}
	h.a, h.b, h.c = makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b"),
		makeContent("disk", api.FileDisk, "c")
	h.in = func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	h.layer = func(c content) string { return h.in(layout.ImagesDir, c.root()+layout.LayerSuffix) }
	r := open(t, base, newClock())
	req := request(idA, "v1", h.a)
	req.NVRAM = []byte("nv")
	mustPush(t, r, req, h.a)
	mustPush(t, r, request(idA, "v2", h.b), h.b)
	mustPush(t, r, request(idB, "v1", h.c), h.c)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

func flip(t *testing.T, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	_, readErr := f.ReadAt(b[:], at)
	b[0] ^= 0x10
	_, writeErr := f.WriteAt(b[:], at)
	if err := errors.Join(readErr, writeErr); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wounds are the kinds of damage of a storage, with the findings of a check without and with deep, and the
// state after a repair.
var wounds = []struct {
	name              string
	do                func(*testing.T, *hurt)
	says              string // in a finding of the check
	loss, deep, left  int    // losses: check, deep check, after the repair
	faults            int    // findings of the check other than losses
	aside             int
	readable          int // versions that can be pulled after the repair
	withoutFindingsIn bool
}{
	{name: "nothing", do: func(*testing.T, *hurt) {}, readable: 3},
	{
		name: "layer gone", says: "is missing", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { must(t, os.Remove(h.layer(h.a))) },
	},
	{
		name: "layer in the trash", says: "is in the trash", faults: 1, readable: 3,
		do: func(t *testing.T, h *hurt) {
			must(t, os.Rename(h.layer(h.a),
				h.in(layout.TrashDir, fmt.Sprintf("%d-%s.ank", time.Now().UnixNano(), h.a.root()))))
		},
	},
	{
		name: "layer cut", says: "is damaged", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { must(t, os.Truncate(h.layer(h.c), 100)) },
	},
	{
		name: "index flipped", says: "is damaged", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { flip(t, h.layer(h.c), h.c.index.StoredBytes()+40) },
	},
	{
		name: "frame flipped", deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { flip(t, h.layer(h.c), 5) },
	},
	{
		name: "another layer under its name", says: "is damaged", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) {
			raw, err := os.ReadFile(h.layer(h.a))
			must(t, err)
			must(t, os.WriteFile(h.layer(h.b), raw, 0o644))
		},
	},
	{
		name: "template not JSON", says: "cannot be read", loss: 1, deep: 1, aside: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { flip(t, h.in(layout.TemplatesDir, idB, "template.json"), 0) },
	},
	{
		name: "template of a newer program", says: "newer version", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) {
			must(t, os.WriteFile(h.in(layout.TemplatesDir, idB, "template.json"), []byte(`{"schema":99}`), 0o644))
		},
	},
	{
		name: "template gone, versions there", says: "it has no template.json", loss: 1, deep: 1, aside: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { must(t, os.Remove(h.in(layout.TemplatesDir, idB, "template.json"))) },
	},
	{
		name: "empty directory", says: "is empty", faults: 1, readable: 3,
		do: func(t *testing.T, h *hurt) { must(t, os.Mkdir(h.in(layout.TemplatesDir, idC), 0o755)) },
	},
	{
		name: "a cut push of a new template", says: "a push left that was cut", faults: 1, readable: 3,
		do: func(t *testing.T, h *hurt) { must(t, os.MkdirAll(h.in(layout.TemplatesDir, idC, ".new-0-x"), 0o755)) },
	},
	{
		name: "a foreign directory", says: "not a UUID", faults: 1, readable: 3, withoutFindingsIn: true,
		do: func(t *testing.T, h *hurt) { must(t, os.Mkdir(h.in(layout.TemplatesDir, "lost+found"), 0o755)) },
	},
	{
		name: "configuration gone", says: "configuration cannot be read", loss: 1, deep: 1, left: 1, readable: 2,
		do: func(t *testing.T, h *hurt) { must(t, os.Remove(h.in(layout.TemplatesDir, idA, "0", idA+".yaml"))) },
	},
	{
		name: "nvram flipped", says: "is not what was pushed", faults: 1, readable: 3, withoutFindingsIn: true,
		do: func(t *testing.T, h *hurt) { flip(t, h.in(layout.TemplatesDir, idA, "0", "nvram"), 0) },
	},
	{
		name: "move cut", says: "not moved to its place", faults: 1, readable: 3,
		do: func(t *testing.T, h *hurt) {
			raw, err := os.ReadFile(h.in(layout.TemplatesDir, idA, "0", "content_id"))
			must(t, err)
			must(t, os.Rename(h.in(layout.TemplatesDir, idA, "0"),
				h.in(layout.TemplatesDir, idA, ".new-0-"+strings.TrimSpace(string(raw)))))
		},
	},
	{
		name: "text files edited", says: "images and state_files do not name", faults: 1, readable: 3,
		do: func(t *testing.T, h *hurt) {
			must(t, os.Remove(h.in(layout.TemplatesDir, idA, "0", "images")))
			must(t, os.WriteFile(h.in(layout.TemplatesDir, idA, "0", "state_files"), []byte("x\n"), 0o644))
		},
	},
}

// TestCheckAndRepair: a check finds every kind of damage and changes nothing. A repair fixes what can be fixed,
// loses no readable version, and does the same next to a running registry.
func TestCheckAndRepair(t *testing.T) {
	for _, w := range wounds {
		t.Run(w.name, func(t *testing.T) {
			h := makeHurt(t)
			w.do(t, h)
			before := treeOf(t, h.base)
			report, err := CheckStorage(t.Context(), h.base, CheckOptions{})
			must(t, err)
			if report.Lost != w.loss || len(report.Findings) != w.loss+w.faults ||
				w.says != "" && !strings.Contains(report.Findings[0].Problem, w.says) {
				t.Fatalf("check: %+v", report)
			}
			deep, err := CheckStorage(t.Context(), h.base, CheckOptions{Deep: true})
			must(t, err)
			if deep.Lost != w.deep {
				t.Fatalf("deep check: %+v", deep)
			}
			if after := treeOf(t, h.base); !slices.Equal(before, after) {
				t.Fatalf("the check changed something:\n%v\n%v", before, after)
			}
			repaired, err := RepairStorage(t.Context(), Options{Base: h.base}, CheckOptions{Deep: true})
			must(t, err)
			if repaired.Lost != w.left || len(repaired.SetAside) != w.aside {
				t.Fatalf("repair: %+v", repaired)
			}
			if w.loss+w.faults > w.left+w.aside && len(repaired.Repaired) == 0 && !w.withoutFindingsIn {
				t.Fatalf("the repair does not say what it cured: %+v", repaired)
			}
			r := open(t, h.base, newClock())
			if n := pullable(r); n != w.readable {
				t.Fatalf("%d versions can be pulled after the repair: %+v", n, r.Status())
			}
		})
	}
}

// TestRepairOfARunningRegistry damages the storage of a registry that runs.
func TestRepairOfARunningRegistry(t *testing.T) {
	for _, w := range wounds {
		t.Run(w.name, func(t *testing.T) {
			h := makeHurt(t)
			r := open(t, h.base, newClock())
			w.do(t, h)
			report, err := r.Check(t.Context(), CheckOptions{Deep: true})
			must(t, err)
			if report.Lost != w.deep {
				t.Fatalf("check: %+v", report)
			}
			repaired, err := r.Repair(t.Context(), CheckOptions{Deep: true})
			must(t, err)
			if strings.HasPrefix(w.name, "template") {
				return // the registry still has the file's old content in memory; a restart reveals the damage
			}
			if repaired.Lost != w.left {
				t.Fatalf("repair: %+v", repaired)
			}
		})
	}
}

// pullable counts the versions whose manifest is returned.
func pullable(r *Registry) int {
	n := 0
	for _, item := range r.ListTemplates() {
		d, _ := r.TemplateDetail(item.ID)
		for _, v := range d.Versions {
			if _, err := r.Manifest(context.Background(), VersionRef{ID: item.ID, Number: &v.Number}); err == nil {
				n++
			}
		}
	}
	return n
}

// treeOf lists names and contents below a directory.
func treeOf(t *testing.T, base string) []string {
	t.Helper()
	var out []string
	err := filepath.Walk(base, func(name string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() || strings.HasSuffix(name, ".lock") {
			out = append(out, name)
			return err
		}
		raw, err := os.ReadFile(name)
		out = append(out, fmt.Sprintf("%s %x", name, len(raw)))
		return err
	})
	must(t, err)
	return out
}

// TestQuarantineKeepsLayers: layers that a damaged template named stay through days of collection, with the template
// in its place and in quarantine. A template whose file was repaired is available again.
func TestQuarantineKeepsLayers(t *testing.T) {
	h := makeHurt(t)
	file := h.in(layout.TemplatesDir, idB, "template.json")
	good, err := os.ReadFile(file)
	must(t, err)
	flip(t, file, 0)
	clock := newClock()
	r := open(t, h.base, clock)
	days := func() {
		t.Helper()
		for range 5 {
			clock.add(26 * time.Hour)
			must(t, r.CollectGarbage(t.Context()))
		}
		if _, err := os.Stat(h.layer(h.c)); err != nil {
			t.Fatal("the layer of a damaged template was collected")
		}
	}
	days()
	report, err := r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if len(report.SetAside) != 1 || report.Lost != 0 {
		t.Fatalf("%+v", report)
	}
	days()
	place := report.SetAside[0].Place
	must(t, os.WriteFile(h.in(place, "template.json"), good, 0o644))
	must(t, os.Rename(h.in(place), h.in(layout.TemplatesDir, idB)))
	must(t, r.Close())
	r = open(t, h.base, clock)
	if tags(r, idB) != "v1" {
		t.Fatal("the template is not there again")
	}
	must(t, verifyAll(r))
	// In vm_dir a file that was put right needs no restart, only a repair.
	flip(t, file, 0)
	must(t, r.Close())
	r = open(t, h.base, clock)
	must(t, os.WriteFile(file, good, 0o644))
	_, err = r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if tags(r, idB) != "v1" || len(r.Status().Damaged) != 0 {
		t.Fatalf("%s, %+v", tags(r, idB), r.Status())
	}
	if err := r.Delete(t.Context(), idB); err != nil {
		t.Fatal(err)
	}
}

// TestRepairTakesLayersIn: a layer file that an operator copied back completes its version without a restart.
func TestRepairTakesLayersIn(t *testing.T) {
	h := makeHurt(t)
	raw, err := os.ReadFile(h.layer(h.c))
	must(t, err)
	must(t, os.Remove(h.layer(h.c)))
	r := open(t, h.base, newClock())
	if _, err := r.Manifest(t.Context(), VersionRef{ID: idB}); farm.CodeOf(err) != farm.CodeRefused ||
		!strings.Contains(err.Error(), "is missing") {
		t.Fatalf("pull without the layer: %v", err)
	}
	must(t, os.WriteFile(h.layer(h.c), raw, 0o644))
	_, err = r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	must(t, verifyAll(r))
	// An unreferenced layer that cannot be read is removed, one that can be read stays.
	for i, text := range []string{"no layer", string(raw)} {
		name := strings.Repeat(fmt.Sprint(i+1), 64)
		if i == 1 {
			name = h.c.root()
		}
		must(t, os.WriteFile(h.in(layout.ImagesDir, name+".ank"), []byte(text), 0o644))
	}
	must(t, r.Close())
	r = open(t, h.base, newClock())
	report, err := r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if len(report.SetAside) != 1 || !strings.Contains(report.SetAside[0].What, strings.Repeat("1", 64)) {
		t.Fatalf("%+v", report)
	}
}

// TestGCAndStats: a requested collection needs no grace period, reports what it would do, and leaves layers
// that a pull may need.
func TestGCAndStats(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a, b, memory := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b"),
		makeContent("memory", api.FileState, "m")
	mustPush(t, r, request(idA, "v1", a, memory), a, memory)
	mustPush(t, r, request(idA, "v2", a), a)
	mustPush(t, r, request(idB, "v1", b), b)
	size := func(c content) int64 { return c.index.FileSize() }
	s, err := r.Stats(t.Context())
	must(t, err)
	if s.Templates != 2 || s.Versions != 3 || s.Layers != 3 || s.Disks != size(a)+size(b) || s.States != size(memory) ||
		s.Shared != size(a) || s.Loose != 0 || s.Longest != 1 || s.Others != 0 {
		t.Fatalf("%+v", s)
	}
	must(t, os.WriteFile(filepath.Join(base, layout.ImagesDir, "foreign"), make([]byte, 77), 0o644))
	must(t, r.Delete(t.Context(), idB))
	if _, err := r.Manifest(t.Context(), VersionRef{ID: idA}); err != nil { // leases a
		t.Fatal(err)
	}
	must(t, r.Delete(t.Context(), idA))
	s, _ = r.Stats(t.Context())
	if s.Loose != size(a)+size(b)+size(memory) || s.Others != 77 || s.Reclaimable < s.Loose {
		t.Fatalf("%+v", s)
	}
	clock.add(time.Minute)
	want := api.RegistryGC{DryRun: true, Layers: 2, Bytes: size(b) + size(memory), Waiting: 1, WaitBytes: size(a)}
	would, err := r.GC(t.Context(), GCOptions{DryRun: true})
	must(t, err)
	if would.Trash = 0; would != want || len(layerFiles(t, base)) != 4 {
		t.Fatalf("%+v", would)
	}
	did, err := r.GC(t.Context(), GCOptions{})
	must(t, err)
	if want.DryRun = false; did.Layers != 2 || did.Purged != 0 || did.Trash < size(b) || len(layerFiles(t, base)) != 2 {
		t.Fatalf("%+v", did)
	}
	clock.add(time.Hour)
	did, err = r.GC(t.Context(), GCOptions{EmptyTrash: true})
	must(t, err)
	if did.Layers != 1 || did.Purged != 5 || did.Trash != 0 || len(layerFiles(t, base)) != 1 {
		t.Fatalf("%+v", did)
	}
}
