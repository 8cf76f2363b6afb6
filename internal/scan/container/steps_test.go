package container

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestSteps: entries below links with many elements are looked up until a number of elements, and the rest is named.
func TestSteps(t *testing.T) {
	const links, files = 30, 100
	entries := []entry{{path: "end", mode: fs.ModeDir | 0o755}}
	for i := range links {
		target := fmt.Sprintf("l%d", i+1)
		if i == links-1 {
			target = "end"
		}
		entries = append(entries, entry{
			path: fmt.Sprintf("l%d", i), mode: fs.ModeSymlink | 0o777, target: strings.Repeat("./", 100) + target,
		})
	}
	for i := range files {
		entries = append(entries, entry{path: fmt.Sprintf("l0/%d", i), file: &content{}})
	}
	entries = append(entries, entry{path: "l0/.wh.0"})
	b := builder{root: newDir(0), steps: links * 101 * files / 2}
	b.apply(0, entries)
	if found := len(b.root.children["end"].children); found != files/2-1 && found != files/2 {
		t.Errorf("%d files were found", found)
	}
	if b.count < files/2 || b.problems[0].Message != "the directory that it is in: "+errSteps.Error() ||
		b.problems[b.count-1].Message != errSteps.Error() {
		t.Errorf("%d problems: %v", b.count, b.problems)
	}
	if n, err := resolve(b.root, "l0/1", true, nil, nil); err != nil || n.file == nil {
		t.Errorf("a file that was found: %v", err)
	}
}
