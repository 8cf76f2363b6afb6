package watch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMacPath(t *testing.T) {
	for in, want := range map[string]string{
		"/System/Volumes/Data":           "/",
		"/System/Volumes/Data/":          "/",
		"/System/Volumes/Data/Users/u/x": "/Users/u/x",
		"/System/Volumes/Database/x":     "/System/Volumes/Database/x",
		"/Applications/A.app/":           "/Applications/A.app",
		"/":                              "/",
		"":                               "/",
	} {
		if got := macPath(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestMacEvents sends artificial events about files that exist or not.
func TestMacEvents(t *testing.T) {
	dir := realPath(t.TempDir())
	put(t, dir+"/r/a.json", dir+"/r/d/b.json", dir+"/r/c.txt")
	s, err := newWatchConfig(&Options{Roots: []string{dir + "/r"}, WantsFile: wanted, Exclude: func(p string) bool {
		return p == dir+"/r/left"
	}})
	must(t, err)
	at := func(name string, what ChangeKind) []Change { return []Change{{filepath.Join(dir, name), what}} }
	for _, c := range []struct {
		what  string
		path  string
		flags uint32
		want  []Change
	}{
		{"a file made and written", "/r/a.json", evIsFile | evCreated | evModified, at("r/a.json", FileChanged)},
		{"one made and removed", "/r/x.json", evIsFile | evCreated | evRemoved, at("r/x.json", Removed)},
		{"one removed and made again", "/r/a.json", evIsFile | evCreated | evRemoved, at("r/a.json", FileChanged)},
		{"one moved away", "/r/x.json", evIsFile | evRenamed, at("r/x.json", Removed)},
		{"one moved here", "/r/a.json", evIsFile | evRenamed, at("r/a.json", FileChanged)},
		{"a mode", "/r/a.json", evIsFile | evInodeMeta, at("r/a.json", FileChanged)},
		{"an attribute of the Finder", "/r/a.json", evIsFile | 0x2000, nil},
		{"one that nobody wants", "/r/c.txt", evIsFile | evModified, nil},
		{"one in a folder that is left", "/r/left/a.json", evIsFile | evModified, nil},
		{"one outside", "/a.json", evIsFile | evModified, nil},
		{"a link", "/r/a.json", evIsSymlink | evCreated, at("r/a.json", FileChanged)},
		{"a clone", "/r/a.json", evIsFile | evCloned, at("r/a.json", FileChanged)},
		{"a folder made", "/r/d/", evIsDir | evCreated, at("r/d", DirChanged)},
		{"a folder moved away", "/r/e", evIsDir | evRenamed, at("r/e", Removed)},
		{"a directory's mode", "/r/d", evIsDir | evInodeMeta, nil},
		{"a folder moved above", "", evIsDir | evRenamed, at("r", DirChanged)},
		{"lost in a folder", "/r/d", evMustScan, at("r/d", DirChanged)},
		{"lost by the kernel", "/r", evMustScan | evKernDropped, at("r", DirChanged)},
		{"lost above", "/", evMustScan | evUserDropped, at("r", DirChanged)},
		{"the root moved", "/r", evRootChanged, at("r", DirChanged)},
		{"the numbers began anew", "", evIDsWrapped, at("r", DirChanged)},
		{"a mount", "/r/d", evMount, at("r/d", DirChanged)},
		{"the end of history", "/r", evHistoryDone, nil},
		{"an own event", "/r/a.json", evIsFile | evModified | evOwn, nil},
		{"an old event", "/r/d", 0, at("r/d", DirChanged)},
	} {
		g := newChangeBuffer(s.roots)
		path := dir + c.path
		if c.path == "/" {
			path = "/"
		}
		mounts := s.addFSEvent(g, path, c.flags)
		if got := g.takeAll(); !slices.Equal(got, c.want) || mounts != (c.flags&(evMount|evUnmount) != 0) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	must(t, os.RemoveAll(dir+"/r"))
	g := newChangeBuffer(s.roots)
	s.addFSEvent(g, dir+"/r", evRootChanged)
	if got := g.takeAll(); !slices.Equal(got, at("r", Removed)) {
		t.Errorf("a root that is gone: %v", got)
	}
}

func TestProgress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	check := func(what string, volumes []string, event uint64, lost bool) {
		t.Helper()
		if e, l := resumePoint(file, volumes); e != event || l != lost {
			t.Errorf("%s: %d %v", what, e, l)
		}
	}
	check("the first start", []string{"A"}, evSinceNow, false)
	must(t, fsEventsProgress{[]string{"A"}, 77}.save(file))
	check("a restart", []string{"A"}, 77, false)
	check("another volume", []string{"B"}, evSinceNow, true)
	check("one more volume", []string{"A", "B"}, evSinceNow, true)
	must(t, fsEventsProgress{[]string{""}, 77}.save(file))
	check("a volume without a number", []string{""}, evSinceNow, true)
	must(t, os.WriteFile(file, []byte(`{"event":`), 0o600))
	check("a torn file", []string{"A"}, evSinceNow, true)
	if e, l := resumePoint("", nil); e != evSinceNow || l {
		t.Error("no file is kept, but something is lost")
	}
}
