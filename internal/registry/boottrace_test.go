package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// traceOf is a trace of a version's only disk.
func traceOf(content, root string, frames ...int) api.BootTrace {
	return api.BootTrace{ID: idA, ContentID: content, Files: map[string]api.FileTrace{
		"disk": {Roots: []string{root}, Frames: frames},
	}}
}

// TestBootTraces: the newest three traces of different senders are kept, and what two of them have is agreed.
func TestBootTraces(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	c := makeContent("disk", api.FileDisk, "one")
	content := mustPush(t, r, request(idA, "v1", c), c).ContentID
	expect := func(when string, want ...int) {
		t.Helper()
		m, err := r.PeekManifest(t.Context(), VersionRef{ID: idA, Tag: "v1"})
		must(t, err)
		if got := m.Files[0].Trace; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	for i, step := range []struct {
		sender string
		frames []int
		want   []int
	}{
		{"a", []int{5, 1, 3}, nil},
		{"a", []int{3, 1, 5}, nil}, // the same sender
		{"b", []int{1, 2, 3, 3}, []int{1, 3}},
		{"c", []int{2, 5}, []int{2, 5, 1, 3}},
		{"d", []int{9, 9}, []int{2}}, // a's is dropped
		{"b", []int{9}, []int{9}},
	} {
		must(t, r.AddBootTrace(step.sender, traceOf(content, c.root(), step.frames...)))
		expect(fmt.Sprintf("step %d", i), step.want...)
	}
	for what, c := range map[string]struct {
		trace api.BootTrace
		code  farm.Code
	}{
		"other layers":    {traceOf(content, "00", 1), farm.CodeConflict},
		"no frames":       {traceOf(content, c.root()), farm.CodeInvalid},
		"many frames":     {traceOf(content, c.root(), make([]int, maxTraceFrames+1)...), farm.CodeInvalid},
		"negative":        {traceOf(content, c.root(), -1), farm.CodeInvalid},
		"a large number":  {traceOf(content, c.root(), maxFrameNumber), farm.CodeInvalid},
		"no files":        {api.BootTrace{ID: idA, ContentID: content}, farm.CodeInvalid},
		"unknown file":    {api.BootTrace{ID: idA, Files: map[string]api.FileTrace{"x": {}}}, farm.CodeInvalid},
		"unknown content": {traceOf("00", c.root(), 1), farm.CodeNoVersion},
		"no template":     {api.BootTrace{ID: "x"}, farm.CodeNotFound},
	} {
		if err := r.AddBootTrace("e", c.trace); farm.CodeOf(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("after refusals", 9)
	must(t, r.Close())
	r = open(t, base, newClock())
	expect("after a start", 9)
	files, err := filepath.Glob(filepath.Join(base, "vm_dir", idA, ".traces", "*"))
	if must(t, err); len(files) != 1 {
		t.Fatal(files)
	}
	must(t, os.WriteFile(files[0], []byte("{"), 0o600))
	expect("damaged")
	must(t, os.WriteFile(filepath.Join(filepath.Dir(files[0]), "old.json"), nil, 0o600))
	must(t, r.AddBootTrace("a", traceOf(content, c.root(), 1)))
	if left, err := os.ReadDir(filepath.Dir(files[0])); err != nil || len(left) != 1 {
		t.Errorf("traces of removed versions stay: %v, %v", left, err)
	}
}
