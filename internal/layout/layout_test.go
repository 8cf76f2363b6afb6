package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/tools/crashfs"
)

const (
	testID = "aaaaaaaa-0000-4000-8000-00000000000f"
	root1  = "1111111111111111111111111111111111111111111111111111111111111111"
	root2  = "2222222222222222222222222222222222222222222222222222222222222222"
)

func testVersion(number int, tag, content string) Version {
	return Version{
		Tag: tag, Number: number, ContentID: content, NVRAM: true, Created: 5, LastPush: 5,
		Files: []File{
			{Name: "disk", Kind: KindDisk, Format: "raw", Size: 10, Layers: []Layer{
				{Digest: root1, Size: 100, IndexOffset: 20, IndexLength: 16}, {Digest: root2, Size: 50, IndexLength: 1},
			}},
			{Name: "memory", Kind: KindState, Size: 10, Layers: []Layer{{Digest: root2, Size: 50, IndexLength: 1}}},
		},
	}
}

func create(t *testing.T) *Dir {
	t.Helper()
	d, err := Create(t.TempDir(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func publish(t *testing.T, d *Dir, tpl *Template) {
	t.Helper()
	v := &tpl.Versions[len(tpl.Versions)-1]
	if err := d.StageVersion(tpl.ID, v, []byte(`{"ram":"1G"}`), []byte("nv")); err != nil {
		t.Fatal(err)
	}
	if err := d.SaveTemplate(tpl); err != nil {
		t.Fatal(err)
	}
}

// TestFilesOnDisk holds what scripts of others read.
func TestFilesOnDisk(t *testing.T) {
	d := create(t)
	tpl := &Template{ID: testID, Name: "x", Gen: 1, Versions: []Version{testVersion(0, "v1", root1)}}
	publish(t, d, tpl)
	if err := d.PruneTemplate(tpl); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"images":          root1 + ".ank\n" + root2 + ".ank\n",
		"state_files":     root2 + ".ank\n",
		testID + ".yaml":  "ram: 1G\n",
		"nvram":           "nv",
		"../../../.lock":  "",
		"../../../files/": "",
	} {
		raw, err := os.ReadFile(filepath.Join(d.Base(), TemplatesDir, testID, "0", name))
		if want != "" && (err != nil || string(raw) != want) {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
	empty := testVersion(1, "v2", root2)
	empty.Files, empty.NVRAM = nil, false
	tpl.Versions, tpl.Gen = append(tpl.Versions, empty), 2
	publish(t, d, tpl)
	_ = d.PruneTemplate(tpl)
	for _, name := range []string{"images", "state_files"} {
		if st, err := os.Stat(filepath.Join(d.Base(), TemplatesDir, testID, "1", name)); err != nil || st.Size() != 0 {
			t.Errorf("%s of a version without files: %v", name, err)
		}
	}
	if added := tpl.Increments(); !slices.Equal(added, []int64{150, 0}) || tpl.Versions[0].Size() != 150 ||
		tpl.Versions[1].Size() != 0 {
		t.Errorf("sizes %d, %d", added, tpl.Versions[0].Size())
	}
	read, err := Open(d.Base())
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	list, damaged, err := read.Templates()
	if err != nil || len(damaged) != 0 || len(list) != 1 || !reflect.DeepEqual(list[0].Versions[0], tpl.Versions[0]) {
		t.Fatalf("%+v, %+v, %v", list, damaged, err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("an empty folder was taken for a storage")
	}
}

func TestSaveIsCompareAndSwap(t *testing.T) {
	d := create(t)
	tpl := Template{ID: testID, Name: "x", Gen: 1}
	for gen, ok := range []bool{false, true, true, false} { // generation 0 does not exist, 3 skips one
		tpl.Gen = int64(gen)
		if gen == 3 {
			tpl.Gen = 5
		}
		err := d.SaveTemplate(&tpl)
		if (err == nil) != ok {
			t.Fatalf("generation %d: %v", tpl.Gen, err)
		}
		if gen == 3 && !errors.Is(err, ErrGenerationConflict) {
			t.Fatal(err)
		}
	}
	if held, err := d.Template(testID); err != nil || held.Gen != 2 {
		t.Fatalf("%+v, %v", held, err)
	}
}

// TestReadersDuringASwap reads a version's configuration at every point between stage and settle, while the
// number changes its owner.
func TestReadersDuringASwap(t *testing.T) {
	d := create(t)
	old := &Template{ID: testID, Name: "x", Gen: 1, Versions: []Version{testVersion(0, "v1", root1)}}
	publish(t, d, old)
	_ = d.PruneTemplate(old)
	next := &Template{ID: testID, Name: "x", Gen: 2, Versions: []Version{testVersion(0, "v2", root2)}}
	v := &next.Versions[0]
	if err := d.StageVersion(testID, v, []byte(`{"ram":"2G"}`), []byte("new")); err != nil {
		t.Fatal(err)
	}
	check := func(v *Version, want string) {
		t.Helper()
		config, err := d.Config(testID, v)
		if err != nil || string(config) != want {
			t.Fatalf("%s, %v", config, err)
		}
	}
	check(&old.Versions[0], `{"ram":"1G"}`)
	check(v, `{"ram":"2G"}`)
	if err := d.SaveTemplate(next); err != nil {
		t.Fatal(err)
	}
	check(&old.Versions[0], `{"ram":"1G"}`)
	check(v, `{"ram":"2G"}`)
	if err := d.CommitVersion(testID, v); err != nil {
		t.Fatal(err)
	}
	check(v, `{"ram":"2G"}`)
	if nvram, err := d.NVRAM(testID, v); err != nil || string(nvram) != "new" {
		t.Fatalf("%q, %v", nvram, err)
	}
	if _, err := d.Config(testID, &old.Versions[0]); err == nil {
		t.Fatal("the directory of another version was believed")
	}
}

func TestCleanupRemovesOnlyItsFiles(t *testing.T) {
	d := create(t)
	tpl := &Template{ID: testID, Name: "x", Gen: 1, Versions: []Version{testVersion(0, "v1", root1)}}
	publish(t, d, tpl)
	dir := filepath.Join(d.Base(), TemplatesDir, testID)
	for _, name := range []string{"1", "7", ".new-3-" + root1, "notes", "01", "-1"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "template.json.tmp"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.PruneTemplate(tpl); err != nil {
		t.Fatal(err)
	}
	entries, _ := d.ReadDir(filepath.Join(TemplatesDir, testID))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "-1 0 01 notes template.json" {
		t.Fatal(got)
	}
	if removed, err := d.RemoveStaged(testID); removed || err != nil {
		t.Fatalf("a whole template was removed: %v", err)
	}
}

func TestPulls(t *testing.T) {
	d := create(t)
	if err := d.SaveTemplate(&Template{ID: testID, Name: "x", Gen: 1}); err != nil {
		t.Fatal(err)
	}
	for when := range int64(3) {
		if err := errors.Join(d.AppendPull(testID, root1, 10+when), d.AppendPull(testID, root2, 5)); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(d.Base(), TemplatesDir, testID, "pulls.log")
	raw, _ := os.ReadFile(name)
	if err := os.WriteFile(name, append(raw, "99 cut off\n77\n88 "+root1[:20]...), 0o644); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{root1: 12, root2: 5}
	got, err := d.LastPulls(testID)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	if err := d.CompactPulls(testID, got); err != nil {
		t.Fatal(err)
	}
	if got, err = d.LastPulls(testID); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	for id, want := range map[string]string{
		testID: testID, strings.ToUpper(testID): testID, "": "", "..": "", testID + "/": "", testID[:35]: "",
		"aaaaaaaa-0000-4000-8000-00000000000g": "", "aaaaaaaa00000-4000-8000-00000000000f": "",
		"../aaaaa-0000-4000-8000-00000000000f": "",
	} {
		if got, _ := ParseID(id); got != want {
			t.Errorf("id %q: %q", id, got)
		}
	}
	for name, ok := range map[string]bool{
		"disk.img": true, "a": true, "A_b-9.qcow2": true, "": false, ".": false, "..": false, ".hidden": false,
		"a/b": false, "a b": false, "a\x00": false, "é": false, strings.Repeat("a", 129): false,
	} {
		if ValidFileName(name) != ok {
			t.Errorf("file name %q", name)
		}
	}
	for name, ok := range map[string]bool{
		root1 + ".ank": true, root1[:32] + ".ank": true, root1: false, root1[:33] + ".ank": false,
		strings.ToUpper(strings.Repeat("a", 32)) + ".ank": false, "../" + root1[:29] + ".ank": false,
	} {
		if ValidLayerName(name) != ok {
			t.Errorf("layer name %q", name)
		}
	}
	for tag, ok := range map[string]bool{"v1+a/b:c #1 ü": true, "": false, "a\nb": false, "\xff": false, "..": true} {
		if ValidTag(tag) != ok {
			t.Errorf("tag %q", tag)
		}
	}
}

func TestNoNameLeavesTheStorage(t *testing.T) {
	d := create(t)
	if _, err := d.Template("../" + testID); err == nil {
		t.Error("template outside of vm_dir")
	}
	if _, err := d.OpenLayer(KindDisk, "../../etc/passwd"); err == nil {
		t.Error("layer outside of images_dir")
	}
	if err := os.Symlink("/etc", filepath.Join(d.Base(), TemplatesDir, testID)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Template(testID); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link out of the storage was followed: %v", err)
	}
}

// TestConfigSurvivesYAML draws objects of every shape.
func TestConfigSurvivesYAML(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		text := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{
				"yes", "no", "~", "null", "1e3", "0x10", "2030-01-01", "- a", "a: b", "#",
				"1_000", " x ", "\u0085", "\ufeff", "<<",
			}))
		leaf := rapid.OneOf(
			rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Float64(), func(x float64) any { return x }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just[any](nil),
		)
		if depth == 0 {
			return leaf
		}
		deeper := rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) })
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(deeper, 0, 3), func(s []any) any { return s }),
			rapid.Map(rapid.MapOfN(text, deeper, 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(rapid.MapOfN(rapid.String(), value(3), 0, 4).Draw(t, "object"))
		if err != nil {
			t.Skip("not JSON")
		}
		canonical, err := CanonicalConfig(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		again, err := CanonicalConfig(canonical)
		if err != nil || string(again) != string(canonical) {
			t.Fatalf("%s became %s, %v", canonical, again, err)
		}
		var a, b any
		if json.Unmarshal(raw, &a) != nil || json.Unmarshal(canonical, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s became %s", raw, canonical)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"ram":"4G","cpu":{"cores":2},"nvram":true,"x":[1,2.5,null,"yes",{"<<":1}]}`))
	f.Add([]byte(`{"a":1e400,"b":18446744073709551616}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, err := CanonicalConfig(raw)
		if err != nil {
			return
		}
		if again, err := CanonicalConfig(canonical); err != nil || string(again) != string(canonical) {
			t.Fatalf("%s became %s, %v", canonical, again, err)
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte("ram: 4G\ncpu:\n  cores: 2\n"))
	f.Add([]byte("a: &x [1, *x]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if raw, err := ConfigToJSON(text); err == nil && !json.Valid(raw) {
			t.Fatalf("%q gave %q", text, raw)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	good, _ := json.Marshal(Template{
		Schema: Schema, ID: testID, Name: "x", Gen: 1, Versions: []Version{testVersion(0, "v1", root1)},
	})
	f.Add(good)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var tpl Template
		if json.Unmarshal(raw, &tpl) != nil || tpl.Validate() != nil {
			return
		}
		for i := range tpl.Versions {
			for _, name := range append(tpl.Versions[i].Images(), tpl.Versions[i].StateFiles()...) {
				if !ValidLayerName(name) {
					t.Fatalf("layer %q", name)
				}
			}
		}
		if slices.ContainsFunc(tpl.Increments(), func(n int64) bool { return n < 0 }) {
			t.Fatal("size overflows")
		}
	})
}

// TestLargeConfigurations: an accepted configuration can be read again, and costs memory in proportion to its
// bytes.
func TestLargeConfigurations(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for name, c := range map[string]struct {
		raw  string
		says string // "": accepted
	}{
		"as deep as can be": {deep(16), ""},
		"too deep":          {deep(17), "more than 16 levels deep"},
		"very deep":         {deep(9000), "more than 16 levels deep"},
		"deep lists": {`{"a":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) +
			`}`, "more than 16 levels deep"},
		"large": {`{"a":"` + strings.Repeat("x", MaxConfigJSON-100) + `"}`, ""},
		"long as YAML": {strings.Repeat(`{"a":`, 15) + "[" + strings.Repeat("0,", 60_000) + "0]" +
			strings.Repeat("}", 15), "as YAML"},
	} {
		canonical, err := CanonicalConfig([]byte(c.raw))
		if c.says == "" && (err != nil || len(canonical) == 0) ||
			c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChainsAreSharedInMemory: versions that were read have the layers of their common chain once.
func TestChainsAreSharedInMemory(t *testing.T) {
	base := t.TempDir()
	d, err := Create(base, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	layer := func(n int) Layer {
		return Layer{Digest: fmt.Sprintf("%064x", n), Size: 100, IndexLength: 10}
	}
	tpl := Template{ID: testID, Name: "n", Gen: 1}
	for i, chain := range [][]Layer{
		{layer(1)}, {layer(1), layer(2)}, {layer(1), layer(3)}, {layer(1), layer(3), layer(4)},
	} {
		tpl.Versions = append(tpl.Versions,
			Version{
				Tag: fmt.Sprint(i), Number: i, ContentID: layer(i).Digest,
				Files: []File{{Name: "d", Kind: KindDisk, Layers: chain}},
			})
	}
	if err := d.SaveTemplate(&tpl); err != nil {
		t.Fatal(err)
	}
	got, err := d.Template(testID)
	if err != nil || !reflect.DeepEqual(got, tpl) {
		t.Fatalf("%+v, %v", got, err)
	}
	at := func(v, l int) *Layer { return &got.Versions[v].Files[0].Layers[l] }
	if at(2, 0) != at(3, 0) || at(0, 0) != at(1, 0) || at(1, 0) == at(2, 0) {
		t.Error("equal chains are in memory twice, or different ones once")
	}
	if v := got.Versions[2].Files[0].Layers; cap(v) != len(v) {
		t.Error("an append to a version would write into another one")
	}
}

// TestNewStorageSurvivesALossOfPower: the name of a new storage is durable, and so is what is saved into it.
func TestNewStorageSurvivesALossOfPower(t *testing.T) {
	base := t.TempDir()
	tree, err := crashfs.Watch(base)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	d, err := Create(filepath.Join(base, "storage"), Hooks{Sync: tree.Sync})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	publish(t, d, &Template{ID: testID, Name: "x", Gen: 1, Versions: []Version{testVersion(0, "v1", root1)}})
	for _, keep := range crashfs.Keeps {
		left := filepath.Join(t.TempDir(), "crashed")
		state, err := tree.Crash(keep)
		if err == nil {
			err = state.Write(left)
		}
		if err != nil {
			t.Fatal(err)
		}
		after, err := Open(filepath.Join(left, "storage"))
		if err != nil {
			t.Fatalf("%s: %v", keep, err)
		}
		list, damaged, err := after.Templates()
		if err != nil || len(damaged) > 0 || len(list) != 1 || after.CheckVersion(testID, &list[0].Versions[0]) != nil {
			t.Errorf("%s: %+v, damaged %+v, %v", keep, list, damaged, err)
		}
		_ = after.Close()
	}
}
