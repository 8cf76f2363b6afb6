package crash

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOperationsFollow: each operation has a version behind every tag that it makes, and the walk knows all of them.
func TestOperationsFollow(t *testing.T) {
	seen := map[string]bool{}
	for _, op := range operations {
		if seen[op.name] || op.do == nil {
			t.Errorf("%q is there twice or does nothing", op.name)
		}
		seen[op.name] = true
		for _, tag := range tagsOf(op.want) {
			if versions[tag].disk == "" {
				t.Errorf("%s: nobody knows what %s holds", op.name, tag)
			}
		}
	}
}

func TestWorth(t *testing.T) {
	steps := strings.Fields("a b a a c")
	for every, want := range map[bool]string{
		false: "[{1 a 1} {1 b 1} {1 a 3} {1 c 1}]", true: "[{1 a 1} {1 b 1} {1 a 2} {1 a 3} {1 c 1}]",
	} {
		w := &walk{Options: Options{Every: every}, report: &Report{}}
		if got := fmt.Sprint(w.worth(1, steps)); got != want {
			t.Errorf("every %v: %s", every, got)
		}
		if len(w.report.Points) != 3 || !slices.Equal(w.report.Points[0].Operations, []string{operations[1].name}) {
			t.Errorf("points are %+v", w.report.Points)
		}
	}
}

// TestUnmet: a point that nothing comes to needs a reason, and one with a reason must not be met.
func TestUnmet(t *testing.T) {
	r := &Report{Points: []*Point{
		{Name: "met", Operations: []string{"x"}},
		{Name: "forgotten"},
		{Name: "known", Reason: "why"},
		{Name: "met after all", Operations: []string{"x"}, Reason: "why"},
	}}
	if got := r.Unmet(); !slices.Equal(got, []string{"forgotten", "met after all"}) {
		t.Errorf("unmet are %v", got)
	}
}

func TestReportCounts(t *testing.T) {
	r := &Report{Points: []*Point{{Name: "a", Operations: []string{operations[0].name}}}}
	lost := Outcome{Planned: 1, Tried: 1, Acknowledged: 3, After: 1, Lost: 2, Missing: 4, Orphans: 5, Wrong: 6}
	r.count(&trial{meeting: meeting{0, "a", 1}, out: lost, problems: []string{"p"}})
	r.count(&trial{meeting: meeting{0, "a", 1}, out: Outcome{Planned: 1, Tried: 1, Before: 1}, full: true})
	if r.Kills() != lost || r.Full().Before != 1 || r.Work[0].Kills != lost || len(r.Problems) != 1 {
		t.Errorf("kills %+v, full %+v", r.Kills(), r.Full())
	}
	var out bytes.Buffer
	r.Print(&out)
	rows := map[string]string{}
	for line := range strings.Lines(out.String()) {
		cells := strings.Fields(line)
		rows[cells[0]] = strings.Join(cells[1:], " ")
	}
	if rows["a"] != "1 1 0 1 3 2 4 5 6 1 1 0 0 0 0 0" {
		t.Errorf("the point's row is %q", rows["a"])
	}
}

func TestNamed(t *testing.T) {
	base := t.TempDir()
	for name, text := range map[string]string{
		"images_dir/one.ank": "", "images_dir/two.ank": "", "state_file_dir/one.ank": "",
		"vm_dir/x/0/images": "one.ank\n", "vm_dir/x/0/state_files": "",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr := &trial{base: base}
	tr.named()
	if tr.out.Orphans != 2 || tr.out.Wrong != 0 {
		t.Errorf("%+v: %v", tr.out, tr.problems)
	}
}

func TestFlipping(t *testing.T) {
	for _, at := range []int64{0, 6, 11} {
		text := []byte("hello, world")
		got, err := io.ReadAll(&flipping{
			ReadCloser: io.NopCloser(io.MultiReader(bytes.NewReader(text[:5]), bytes.NewReader(text[5:]))), at: at,
		})
		want := bytes.Clone(text)
		want[at] ^= 0x10
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("at %d: %q, %v", at, got, err)
		}
	}
}
