package unread

import (
	"fmt"
	"strings"
	"testing"
)

func everywhere(string) bool { return true }

func nowhere(string) bool { return false }

// TestBounded: what is not named any more is still known.
func TestBounded(t *testing.T) {
	var l List
	for i := range maxFiles + 1 {
		if !l.Add(File{Path: fmt.Sprintf("/job/%d", i), Message: "too large", Stamp: 1}) {
			t.Errorf("file %d changes nothing", i)
		}
	}
	if l.Add(File{Path: "/job/5", Message: "too large", Stamp: 1}) {
		t.Error("a file that did not change is an event")
	}
	if len(l.Files) != maxFiles || l.Last != maxFiles+1 || l.Dropped != 1 {
		t.Errorf("%d files, %d events, %d dropped", len(l.Files), l.Last, l.Dropped)
	}
	for number, want := range map[uint64]string{0: "too many files", 1: "", maxFiles: ""} {
		if got := l.Since(number, nowhere); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("since %d: %q", number, got)
		}
	}
	l.Add(File{Path: "/job/5", Message: "too large", Stamp: 2})
	if got := l.Since(maxFiles+1, everywhere); !strings.Contains(got, "/job/5: too large") || len(l.Files) != maxFiles {
		t.Errorf("%q, %d files", got, len(l.Files))
	}
	isFifth := func(f File) bool { return f.Path == "/job/5" }
	if !l.Remove(isFifth) || l.Remove(isFifth) {
		t.Error("a file is removed twice")
	}
	if got := l.Since(maxFiles+1, everywhere); got != "" {
		t.Errorf("%q", got)
	}
}
