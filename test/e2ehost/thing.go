package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// packageFile is a package with the path of the file that describes it.
type packageFile struct{ kind, name, version, path string }

func (t packageFile) String() string {
	return fmt.Sprintf("%s %s %s (%s)", t.kind, t.name, t.version, t.path)
}

func compareThings(a, b packageFile) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version),
		cmp.Compare(a.path, b.path))
}

// kinds are the nine.
var kinds = []string{"gem", "python", "npm", "java", "go", "rust", "brew", "macos-app", "pod"}

// record has what the installers installed and removed, and when.
type record struct {
	mu   sync.Mutex
	came map[packageFile]event
	went map[packageFile]event
}

// event is when and how.
type event struct {
	at  time.Time
	how string
}

func newRecord() *record {
	return &record{came: map[packageFile]event{}, went: map[packageFile]event{}}
}

// installed records packages whose files exist now. They came when the file that describes them was
// last written or linked, or at since if that is later: the time of a rename, which does not change
// the files below.
func (r *record) installed(how string, since time.Time, things ...packageFile) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range things {
		at, err := changed(t.path)
		if err != nil {
			return fmt.Errorf("%s did not install %s: %w", how, t, err)
		}
		if since.After(at) {
			at = since
		}
		if e, ok := r.came[t]; !ok || e.at.After(at) {
			r.came[t] = event{at, how}
		}
		delete(r.went, t)
	}
	return nil
}

// removed records packages that are gone since a time.
func (r *record) removed(how string, at time.Time, things ...packageFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range things {
		r.went[t] = event{at, how}
	}
}

// there returns what must be in the report.
func (r *record) there() map[packageFile]event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[packageFile]event{}
	for t, e := range r.came {
		if _, gone := r.went[t]; !gone {
			out[t] = e
		}
	}
	return out
}

// changed is when a file's content, links or permissions last changed.
func changed(path string) (time.Time, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return time.Time{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return time.Unix(st.Ctim.Unix()), nil
}

// things returns a set in order.
func things(set map[packageFile]bool) []packageFile {
	var out []packageFile
	for t := range set {
		out = append(out, t)
	}
	slices.SortFunc(out, compareThings)
	return out
}

// differ compares two sets and reports the elements that only one has.
func differ(r *row, want, got map[packageFile]bool, missing, additional string) {
	for _, t := range things(want) {
		r.check(got[t], "%s: %s", missing, t)
	}
	for _, t := range things(got) {
		if !want[t] {
			r.check(false, "%s: %s", additional, t)
		}
	}
}

// within returns the elements below some directories.
func within(set map[packageFile]bool, dirs ...string) map[packageFile]bool {
	out := map[packageFile]bool{}
	for t := range set {
		if slices.ContainsFunc(dirs, func(f string) bool { return strings.HasPrefix(t.path, f+"/") }) {
			out[t] = true
		}
	}
	return out
}
