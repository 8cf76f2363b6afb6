package failpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryDurableCallIsNamed reads this module.
func TestEveryDurableCallIsNamed(t *testing.T) {
	points, err := Read("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"template.create", "template.sync", "template.rename", "template.dirsync",
		"layer.sync", "layer.rename", "trash.rename", "mkdir.dirsync",
	} {
		if !slices.Contains(points, want) {
			t.Errorf("%s is not among %v", want, points)
		}
	}
	t.Logf("%d points", len(points))
}

// TestAForgottenStepIsFound checks small sources, correct and wrong ones.
func TestAForgottenStepIsFound(t *testing.T) {
	const head = "package p\nimport \"os\"\ntype F struct{}\nfunc (f *F) AnnounceStep(string) {}\n" +
		"func (f *F) Put(label string, x *os.File) error { f.AnnounceStep(label + \".sync\"); return x.Sync() }\n"
	for name, c := range map[string]struct{ source, want, bad string }{
		"labelled": {`func (f *F) g(x *os.File) error { return f.Put("a", x) }`, "a.sync", ""},
		"own step": {`func (f *F) g(x *os.File) error { f.AnnounceStep("b"); return x.Sync() }`, "b", ""},
		"none":     {`func g(x *os.File) error { return x.Sync() }`, "", "Sync in g has no separate step"},
		"one for two": {
			`func (f *F) g(x *os.File) error { f.AnnounceStep("c"); _ = x.Sync(); return os.Rename("a", "b") }`,
			"c", "Rename in g has no separate step",
		},
		"behind it": {
			`func (f *F) g(x *os.File) error { err := x.Sync(); f.AnnounceStep("d"); return err }`, "d",
			"Sync in g has no separate step",
		},
		"no sync": {
			`func (f *F) g(x *os.File) { f.AnnounceStep("e.sync") }`, "", "no sync follows the step \"e.sync\" in g",
		},
		"sync too late": {
			`func (f *F) g(x *os.File) { f.AnnounceStep("f.sync"); f.AnnounceStep("g"); _ = x.Sync() }`,
			"", "no sync follows the step \"f.sync\" in g",
		},
		"label, no sync": {
			`func (f *F) Keep(label string) { f.AnnounceStep(label + ".dirsync") }`,
			"", "no sync follows the step \".dirsync\" in Keep",
		},
		"in a function": {`func g(x *os.File) { func() { _ = x.Sync() }() }`, "", "Sync in g has no separate step"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range Dirs {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, dir, "x.go"), []byte(head+c.source), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			points, err := Read(root)
			if (err != nil) != (c.bad != "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Fatalf("%v", err)
			}
			if c.want != "" && !slices.Equal(points, []string{c.want}) {
				t.Fatalf("%v", points)
			}
		})
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Fatal("no sources are no error")
	}
}
