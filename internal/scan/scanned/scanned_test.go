package scanned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func version(n int) *Version {
	return &Version{
		TemplateID: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032", Tag: "v1", ContentID: fmt.Sprint(n), Storage: "/mnt",
		Packages: []catalog.Package{{Kind: catalog.NPM, Name: "lodash", Version: "1", Locations: []string{"/a"}}},
	}
}

// What was saved is loaded, until it is removed.
func TestSave(t *testing.T) {
	c := Open(filepath.Join(t.TempDir(), "new"))
	if names, err := c.Names(); err != nil || len(names) != 0 {
		t.Fatalf("%v %v", names, err)
	}
	for n := range 2 {
		if err := c.Save(version(n)); err != nil {
			t.Fatal(err)
		}
	}
	names, err := c.Names()
	if err != nil || len(names) != 2 {
		t.Fatalf("%v %v", names, err)
	}
	want := version(1)
	if got, err := c.Load(want.Name()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	for range 2 {
		if err := c.Remove(want.Name()); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Load(want.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A scan of a part does not replace one of the whole, and is replaced itself.
func TestSavePartial(t *testing.T) {
	c := Open(t.TempDir())
	for _, step := range []struct{ partial, want bool }{{true, true}, {false, false}, {true, false}} {
		v := version(1)
		v.Partial = step.partial
		if err := c.Save(v); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Load(v.Name()); err != nil || got.Partial != step.want {
			t.Errorf("after a partial scan (%t): %+v %v", step.partial, got, err)
		}
	}
}

// An entry with a changed or missing byte, or of another version, is refused.
func TestDamage(t *testing.T) {
	c, v := Open(t.TempDir()), version(1)
	if err := c.Save(v); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, v.Name()+suffix)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, raw []byte) {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Load(v.Name()); err == nil && !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for i := range whole {
		changed := append([]byte{}, whole...)
		changed[i] ^= 0x10
		try(fmt.Sprintf("byte %d", i), changed)
		try(fmt.Sprintf("%d bytes", i), whole[:i])
	}
	try("whole", whole)
	other := version(2).Name()
	if err := os.Rename(file, filepath.Join(c.dir, other+suffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(other); err == nil {
		t.Error("an entry of another version")
	}
}
