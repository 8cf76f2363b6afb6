package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// large writes a file that is larger than what is read of its kind.
func (b *bench) large(name string) {
	b.t.Helper()
	full := b.write(name, "{}")
	if err := os.Truncate(full, 1<<32); err != nil {
		b.t.Fatal(err)
	}
	b.news(Change{full, FileChanged})
}

// expectGap checks the gap in the report of a job after all changes.
func (b *bench) expectGap(job, want string) {
	b.t.Helper()
	if err := b.Settle(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	list := b.Marks()
	at := slices.IndexFunc(list, func(m Mark) bool { return m.Job == job })
	if got := b.Gap(list[at]); !strings.Contains(got, want) || want == "" && got != "" {
		b.t.Errorf("gap of %s: %q, want %q", job, got, want)
	}
}

// TestGapOfUnreadFile: a file of a job that cannot be read makes its report incomplete, also after a restart and a full
// scan, until it is read or gone.
func TestGapOfUnreadFile(t *testing.T) {
	b := newBench(t, nil)
	if err := os.MkdirAll(filepath.Join(b.dir, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.large("before/package-lock.json")
	b.mark("job", "")
	b.mark("other", "other")
	b.expectGap("job", "")

	b.large("work/package-lock.json")
	want := "not everything could be read: " + filepath.Join(b.dir, "work", "package-lock.json") + ": "
	b.expectGap("job", want)
	b.expectGap("other", "")
	b.restart()
	b.expectGap("job", want)
	b.full()
	b.expectGap("job", want)
	b.mark("later", "")
	b.expectGap("later", "")

	b.write("work/package-lock.json", `{"lockfileVersion":3,"packages":{}}`)
	b.expectGap("job", "")
	b.large("work/package-lock.json")
	b.expectGap("later", want)
	b.remove("work")
	b.expectGap("later", "")
	b.large("work/package-lock.json")
	if err := os.RemoveAll(filepath.Join(b.dir, "work")); err != nil { // without an event
		t.Fatal(err)
	}
	b.full()
	b.expectGap("later", "")
	b.write("work/package-lock.json", "not JSON") // it was read
	b.expectGap("later", "")
}

func TestIsUnread(t *testing.T) {
	for message, want := range map[string]bool{
		"npm: larger than the limit":     true,
		"npm: input/output error":        true,
		"npm: permission denied":         true,
		"npm: no such file or directory": false,
		"npm: not a directory":           false,
	} {
		if got := isUnread(catalog.Warning{Path: "/", Message: message}); got != want {
			t.Errorf("%s: %v", message, got)
		}
	}
	if isUnread(catalog.Warning{Path: "/", Message: "npm: no JSON", InvalidContent: true}) {
		t.Error("a file that was read counts as unread")
	}
}
