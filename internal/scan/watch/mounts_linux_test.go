package watch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needMounts skips a test that mounts, unless this process has its own mount table.
func needMounts(t *testing.T) {
	t.Helper()
	if os.Getenv(ownSpace) == "" {
		t.Skip("mounting needs root")
	}
}

// mount mounts for one test.
func mount(t *testing.T, source, at, kind string, flags uintptr, data string) {
	t.Helper()
	must(t, os.MkdirAll(at, 0o755))
	if err := unix.Mount(source, at, kind, flags, data); err != nil {
		t.Fatalf("mounting %s at %s: %v", kind, at, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// how returns the reported state of a mount.
func (w *watched) how(path string) Mount {
	for _, m := range w.w.Mounts() {
		if m.Path == path {
			return m
		}
	}
	return Mount{}
}

func TestMountsThatComeAndGo(t *testing.T) {
	needMounts(t)
	for _, m := range []Method{Fanotify, Inotify} {
		t.Run(string(m), func(t *testing.T) {
			dir := realPath(t.TempDir())
			put(t, dir+"/in/hidden.json", dir+"/a.json")
			w := begin(t, options(t, m, dir))
			mount(t, "tmpfs", dir+"/in", "tmpfs", 0, "")
			w.equal()
			if !eventually(func() bool { return w.how(dir+"/in").Method == m }) {
				t.Errorf("nothing is said of it: %v", w.w.Mounts())
			}
			shell(t, dir, "mkdir -p in/x/y; echo 1 > in/x/y/new.json; mkdir in/sub")
			w.equal()
			mount(t, "tmpfs", dir+"/in/sub", "tmpfs", 0, "")
			shell(t, dir, "echo 1 > in/sub/1.json; mkdir in/sub/d; echo 1 > in/sub/d/2.json")
			w.equal()
			// The directory may have been walked for another reason. A mount removed before it was
			// noticed is not reported.
			if !eventually(func() bool { return w.how(dir+"/in/sub").Method == m }) {
				t.Errorf("nothing is said of the second: %v", w.w.Mounts())
			}
			must(t, unix.Unmount(dir+"/in/sub", 0))
			w.equal()
			shell(t, dir, "echo 1 > in/sub/below.json; mv in/x in/sub; echo 2 > in/sub/x/y/b.json")
			w.equal()
			must(t, unix.Unmount(dir+"/in", 0))
			shell(t, dir, "echo 1 > in/open.json")
			w.equal()
		})
	}
}

// TestUnmountIsNotBlocked also writes right before, so that handles are resolved.
func TestUnmountIsNotBlocked(t *testing.T) {
	needMounts(t)
	dir := realPath(t.TempDir())
	mount(t, "tmpfs", dir+"/in", "tmpfs", 0, "")
	w := begin(t, options(t, Fanotify, dir))
	for i := range 3 {
		name := fmt.Sprintf("in/d%d", i)
		shell(t, dir, "mkdir "+name+"; echo 1 > "+name+"/a.json")
		w.equal()
	}
	if !eventually(func() bool { return unix.Unmount(dir+"/in", 0) == nil }) {
		t.Error("it stays busy")
	}
	w.equal()
}

func TestBindMounts(t *testing.T) {
	needMounts(t)
	for _, m := range []Method{Fanotify, Inotify} {
		t.Run(string(m), func(t *testing.T) {
			dir := realPath(t.TempDir())
			put(t, dir+"/fs/a/b/1.json", dir+"/fs/c/2.json")
			mount(t, "tmpfs", dir+"/fs", "tmpfs", 0, "")
			put(t, dir+"/fs/a/b/3.json", dir+"/fs/c/4.json")
			mount(t, dir+"/fs/a", dir+"/seen", "", unix.MS_BIND, "")
			w := begin(t, options(t, m, dir))
			shell(t, dir,
				"echo 1 > fs/a/b/5.json; echo 1 > seen/b/6.json; mkdir -p seen/n; echo 1 > seen/n/7.json; echo 1 "+
					"> fs/c/8.json")
			w.expect(Change{dir + "/seen/b/5.json", FileChanged}, Change{dir + "/fs/a/b/6.json", FileChanged})
			w.equal()
			shell(t, dir, "mv fs/a/b fs/c; mv fs/c/b seen/q; rm -r fs/a/n")
			w.equal()
			must(t, unix.Unmount(dir+"/fs", unix.MNT_DETACH)) // only a part of it is visible now
			shell(t, dir, "echo 1 > seen/9.json; mkdir -p seen/z/z; echo 1 > seen/z/z/10.json; echo 1 > fs/11.json")
			w.equal()
		})
	}
}

// TestBindMountHidesWhatIsAbove has a root below a bind mount of a directory, so that the file
// system's own root is not visible.
func TestBindMountHidesWhatIsAbove(t *testing.T) {
	needMounts(t)
	dir := realPath(t.TempDir())
	mount(t, "tmpfs", dir+"/fs", "tmpfs", 0, "")
	put(t, dir+"/fs/x/in/a.json", dir+"/fs/y/b.json")
	mount(t, dir+"/fs/x/in", dir+"/one", "", unix.MS_BIND, "")
	mount(t, dir+"/fs/y", dir+"/two", "", unix.MS_BIND, "")
	mount(t, "tmpfs", dir+"/two/over", "tmpfs", 0, "")
	mount(t, dir+"/fs", dir+"/away", "", unix.MS_BIND, "")
	must(t, unix.Unmount(dir+"/away", 0), unix.Unmount(dir+"/fs", unix.MNT_DETACH))
	w := begin(t, options(t, Fanotify, dir))
	shell(t, dir, "echo 1 > one/c.json; mkdir -p two/d; echo 1 > two/d/e.json; echo 1 > two/over/f.json")
	w.equal()
}

func TestExt4(t *testing.T) {
	needMounts(t)
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("there is no mkfs.ext4")
	}
	dir := realPath(t.TempDir())
	image := filepath.Join(dir, "image")
	must(t, os.WriteFile(image, nil, 0o600), os.Truncate(image, 32<<20), os.Mkdir(dir+"/in", 0o755))
	if out, err := exec.Command(mkfs, "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := begin(t, options(t, Fanotify, dir+"/in"))
	if out, err := exec.Command("mount", "-o", "loop", image, dir+"/in").CombinedOutput(); err != nil {
		t.Skipf("no loop device: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir+"/in").Run() })
	shell(t, dir,
		"mkdir -p in/a/b; echo 1 > in/a/b/c.json; ln in/a/b/c.json in/d.json; mv in/a in/e; rm in/e/b/c.json; echo "+
			"1 > in/e/b/f.json")
	w.equal()
	shell(t, dir, "umount in")
	w.equal()
}

// overlay mounts one whose handles cannot be opened.
func overlay(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"lower/place/old", "lower/other", "upper", "work"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	put(t, dir+"/lower/place/old/a.json", dir+"/lower/other/b.json")
	mount(t, "overlay", dir+"/merged", "overlay", 0,
		fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir))
}

func TestOverlayIsWatchedInPart(t *testing.T) {
	needMounts(t)
	dir := realPath(t.TempDir())
	mount(t, "tmpfs", dir, "tmpfs", 0, "")
	overlay(t, dir)
	root := dir + "/merged"
	o := Options{Roots: []string{"/"}, PackageDirs: []string{root + "/place", root + "/later"}, Method: Fanotify}
	w := begin(t, o)
	m := w.how(root)
	if m.Method != FanotifyWritten && m.Method != Fanotify || m.Method == FanotifyWritten && m.Reason == "" {
		t.Fatalf("%+v", m)
	}
	t.Logf("%+v", m)
	shell(t, root, "echo 1 > other/c.json; mv place/old place/new; echo 2 > place/new/d.json; rm place/new/a.json")
	shell(t, root, "mkdir -p later/x; mv place/new/d.json later/x/e.json")
	w.expect(Change{root + "/other/c.json", FileChanged}, Change{root + "/place/old", Removed},
		Change{root + "/place/new", DirChanged})
	w.expect(Change{root + "/later", DirChanged})
	shell(t, root, "mv later/x/e.json later/x/f.json; echo 3 > other/c.json")
	w.expect(Change{root + "/later/x/e.json", Removed}, Change{root + "/later/x/f.json", FileChanged})
}

// TestOverlayAsRoot watches a directory completely that is a root.
func TestOverlayAsRoot(t *testing.T) {
	needMounts(t)
	dir := realPath(t.TempDir())
	mount(t, "tmpfs", dir, "tmpfs", 0, "")
	overlay(t, dir)
	w := begin(t, Options{Roots: []string{dir + "/merged"}})
	shell(t, dir+"/merged", "mv place x; mkdir -p x/y/z; echo 1 > x/y/z/n.json; rm -r other; echo 2 > x/old/a.json")
	w.equal()
	must(t, unix.Unmount(dir+"/merged", unix.MNT_DETACH))
	w.equal()
}

func TestPseudoFileSystemsAreLeftOut(t *testing.T) {
	needMounts(t)
	w := begin(t, Options{Roots: []string{"/"}, WantsFile: func(string) bool { return false }, Method: Fanotify})
	if m := w.how("/proc"); m.Method != None || m.Reason == "" {
		t.Errorf("%+v", m)
	}
	if m := w.how("/"); m.Method == None {
		t.Errorf("%+v", m)
	}
}

func TestOverflowLooksAgain(t *testing.T) {
	needMounts(t)
	for m, setting := range map[Method]string{
		Fanotify: "/proc/sys/fs/fanotify/max_queued_events", Inotify: "/proc/sys/fs/inotify/max_queued_events",
	} {
		t.Run(string(m), func(t *testing.T) {
			before, err := os.ReadFile(setting)
			must(t, err, os.WriteFile(setting, []byte("10"), 0o644))
			t.Cleanup(func() { must(t, os.WriteFile(setting, before, 0o644)) })
			dir := realPath(t.TempDir())
			w := begin(t, options(t, m, dir))
			must(t, os.WriteFile(setting, before, 0o644)) // a queue keeps its initial length
			shell(t, dir, `for i in $(seq 300); do mkdir -p d$i/e; echo 1 > d$i/e/f.json; done; rm -r d1*; mv d2 z`)
			w.equal()
			w.expect(Change{dir, DirChanged})
			shell(t, dir, "echo 1 > d3/e/new.json; mkdir d3/e/n; echo 1 > d3/e/n/x.json")
			w.equal()
		})
	}
}

// TestWatchesRunOut polls the directories for which inotify has no watches.
func TestWatchesRunOut(t *testing.T) {
	dir := realPath(t.TempDir())
	shell(t, dir, "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d$i/a/b; echo 1 > d$i/a/b/c.json; done")
	few := func(tn *testLimits) { tn.maxWatches = 20 }
	w := begin(t, options(t, Inotify, dir), often, few)
	shell(t, dir,
		"for i in 1 2 3 4 5 6 7 8 9; do echo 1 > d$i/a/b/d.json; rm d$i/a/b/c.json; mkdir d$i/a/e; mv d$i/a/b "+
			"d$i/a/e; done")
	w.equal()
	polled := false
	for _, m := range w.w.Mounts() {
		polled = polled || m.Method == Poll && strings.Contains(m.Reason, "max_user_watches")
	}
	if !polled {
		t.Errorf("nothing is said of it: %v", w.w.Mounts())
	}
	shell(t, dir,
		"rm -r d1 d2 d3 d4 d5; for i in 6 7 8 9; do mv d$i n$i; echo 2 > n$i/a/x.json; done; mkdir -p new/er; echo "+
			"1 > new/er/y.json")
	w.equal()
}

// TestPlacesThatComeLater watches the ancestors of missing places.
func TestPlacesThatComeLater(t *testing.T) {
	dir := realPath(t.TempDir())
	place := dir + "/user/cargo/registry"
	w := begin(t, Options{Roots: []string{"/"}, PackageDirs: []string{place, dir + "/there"}, Method: Inotify})
	shell(t, dir,
		"mkdir -p user/cargo/registry/x; echo 1 > user/cargo/registry/x/1.json; mkdir there; echo 1 > there/2.json")
	w.expect(Change{place, DirChanged}, Change{dir + "/there", DirChanged})
	if !eventually(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.files[place+"/x/1.json"] && w.files[dir+"/there/2.json"]
	}) {
		t.Error(w.files)
	}
	w.forget()
	shell(t, dir, "mv user/cargo user/away; echo 1 > user/away/registry/x/3.json")
	w.expect(Change{place, Removed})
	shell(t, dir, "mv user/away user/cargo; echo 1 > user/cargo/registry/x/4.json")
	w.expect(Change{place, DirChanged})
	w.forget()
	shell(t, dir, "rm -r user; mkdir -p user/cargo/registry/y; echo 1 > user/cargo/registry/y/5.json")
	if !eventually(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.files[place+"/y/5.json"] && !w.files[place+"/x/1.json"]
	}) {
		t.Error(w.files)
	}
	for _, c := range w.changes() {
		if !isWithin(place, c.Path) && !isWithin(dir+"/there", c.Path) {
			t.Errorf("%v is in no place", c)
		}
	}
}
