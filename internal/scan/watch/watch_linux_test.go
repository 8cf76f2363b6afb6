package watch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// ownSpace is set in a process that has its own mount table.
const ownSpace = "WATCH_TEST_SPACE"

// TestMain gives root a private mount table, so that the mounts of tests end with them.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(ownSpace) == "" {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownSpace+"=1"))
		}
		fmt.Fprintln(os.Stderr, "no table of mounts of its own:", err)
		runtime.UnlockOSThread()
	}
	os.Exit(m.Run())
}

var methods = []Method{Fanotify, Inotify, Poll}

// options returns the options to watch one directory by some method, and skips a method that is
// unavailable here.
func options(t *testing.T, m Method, root string) Options {
	t.Helper()
	if m == Fanotify && os.Geteuid() != 0 {
		t.Skip("fanotify marks of file systems need root")
	}
	return Options{Roots: []string{root}, Method: m}
}

func often(tn *testLimits) { tn.pollInterval = 50 * time.Millisecond }

// each runs a test with every method in a separate directory.
func each(t *testing.T, test func(t *testing.T, w *watched, dir string, sh func(script string))) {
	eachIn(t, func(t *testing.T) string { return realPath(t.TempDir()) }, test)
}

// eachIn is each with directories that the caller selects.
func eachIn(
	t *testing.T, folder func(t *testing.T) string,
	test func(t *testing.T, w *watched, dir string, sh func(script string)),
) {
	for _, m := range methods {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			w := begin(t, options(t, m, dir), often)
			test(t, w, dir, func(script string) { shell(t, dir, script) })
		})
	}
}

// shell changes files as another process.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// quietFolder makes a directory on a separate file system where possible: the kernel has one queue
// per file system, and writes of other processes may fill it at any time.
func quietFolder(t *testing.T) string {
	dir := realPath(t.TempDir())
	if os.Getenv(ownSpace) != "" {
		mount(t, "tmpfs", dir, "tmpfs", 0, "")
	}
	return dir
}

func TestEachKind(t *testing.T) {
	eachIn(t, quietFolder, func(t *testing.T, w *watched, dir string, sh func(string)) {
		at := func(name string, what ChangeKind) Change { return Change{filepath.Join(dir, name), what} }
		steps := []struct {
			script string
			want   []Change
		}{
			{"echo 1 > a.json", []Change{at("a.json", FileChanged)}},
			{"echo 1 > b.txt; echo 22 > a.json", []Change{at("a.json", FileChanged)}},
			{"chmod +x a.json", []Change{at("a.json", FileChanged)}},
			{"mv a.json b.json", []Change{at("a.json", Removed), at("b.json", FileChanged)}},
			{"mv b.txt c.json", []Change{at("c.json", FileChanged)}},
			{"ln c.json d.json", []Change{at("d.json", FileChanged)}},
			{"ln -s nowhere e.json", []Change{at("e.json", FileChanged)}},
			{"rm b.json e.json", []Change{at("b.json", Removed), at("e.json", Removed)}},
			{"mkdir x; echo 1 > x/METADATA", nil},
			{"mv x y", []Change{at("x", Removed), at("y", DirChanged)}},
			{"echo 333 > y/METADATA", []Change{at("y/METADATA", FileChanged)}},
			{"rm -r y", []Change{at("y", Removed)}},
		}
		for _, s := range steps {
			w.forget()
			sh(s.script)
			w.expect(s.want...)
			w.equal()
		}
	})
}

func TestDeepTreeInOneStep(t *testing.T) {
	each(t, func(t *testing.T, w *watched, dir string, sh func(string)) {
		sh(
			`for i in 1 2 3 4 5 6 7 8; do mkdir -p t$i/a/b/c/d/e/f; for d in t$i t$i/a t$i/a/b/c t$i/a/b/c/d/e/f; do echo 1 > $d/package.json; done; done`)
		w.equal()
		sh(
			`mv t1 t2/a; mv t2/a t9; mkdir t10; mv t3 t4 t5 t10; mv t10/t4/a/b t10/b; rm -r t6; mv t7 t6; echo 2 > t6/a/x.json`)
		w.equal()
		sh(`mv t9/t1/a/b t1; rm -rf t9; mv t1 t9; touch t9/c/new.json`)
		w.equal()
	})
}

func TestDirectoryMovesInAndOut(t *testing.T) {
	for _, m := range methods {
		t.Run(string(m), func(t *testing.T) {
			top := realPath(t.TempDir())
			root, out := top+"/in", top+"/out"
			put(t, root+"/a/1.json", out+"/b/c/2.json")
			w := begin(t, options(t, m, root), often)
			shell(t, top, "mv out/b in; mv in/a out")
			w.equal()
			shell(t, top, "echo 1 > in/b/c/3.json; echo 1 > out/a/4.json")
			w.equal()
			shell(t, top, "mv in gone; mkdir -p in/x; echo 1 > in/x/5.json")
			w.equal()
			shell(t, top, "echo 1 > gone/b/6.json; echo 2 > in/x/7.json")
			w.equal()
			for _, c := range w.changes() {
				if !isWithin(root, c.Path) {
					t.Errorf("%v is outside of the root", c)
				}
			}
		})
	}
}

func TestNamesOfAllKinds(t *testing.T) {
	each(t, func(t *testing.T, w *watched, dir string, sh func(string)) {
		for _, d := range []string{"with blank", "line\nend", "\xff\xfe", "ünï", `back\134slash`, "x (deleted)"} {
			sh("mkdir -p " + quote(d) + "; echo 1 > " + quote(d+"/a b\n.json"))
		}
		w.equal()
		sh("mv 'x (deleted)' y; mv 'with blank' 'x (deleted)'; echo 2 > 'x (deleted)/b.json'")
		w.equal()
	})
}

func quote(s string) string { return "'" + s + "'" }

// TestRandom runs random commands in trees that are renamed all the time.
func TestRandom(t *testing.T) {
	each(t, func(t *testing.T, w *watched, dir string, sh func(string)) {
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		for range 6 {
			var script strings.Builder
			for range 60 {
				script.WriteString(step(r))
			}
			sh(script.String())
			w.equal()
		}
	})
}

// step returns a random command, which may fail.
func step(r *rand.Rand) string {
	folder := func() string {
		p := "."
		for range r.IntN(4) {
			p += fmt.Sprintf("/d%d", r.IntN(3))
		}
		return p
	}
	file := func() string { return fmt.Sprintf("%s/f%d.json", folder(), r.IntN(3)) }
	switch r.IntN(9) {
	case 0, 1:
		d := folder()
		return fmt.Sprintf("mkdir -p %s && echo 1 > %s/f%d.json || :\n", d, d, r.IntN(3))
	case 2:
		return fmt.Sprintf("(echo %d > %s) 2>&- || :\n", r.Int(), file())
	case 3:
		return fmt.Sprintf("rm -f %s\n", file())
	case 4:
		return fmt.Sprintf("mv %s %s 2>&- || :\n", file(), file())
	case 5:
		return fmt.Sprintf("mv -T %s %s 2>&- || :\n", folder(), folder())
	case 6:
		return fmt.Sprintf("mv %s %s 2>&- || :\n", folder(), folder())
	case 7:
		return fmt.Sprintf("ln -f %s %s 2>&- || :\n", file(), file())
	default:
		return fmt.Sprintf("[ %[1]s = . ] || rm -rf %[1]s\n", folder())
	}
}

func TestOwnChangesAndLeftDirectories(t *testing.T) {
	dir := quietFolder(t)
	put(t, dir+"/left/old.json", dir+"/kept/old.json")
	o := options(t, Fanotify, dir)
	o.Exclude = func(p string) bool { return p == dir+"/left" }
	w := begin(t, o)
	put(t, dir+"/own.json")
	shell(t, dir,
		"echo 1 > left/a.json; mkdir -p left/b; echo 1 > left/b/c.json; mv left/b left/d; echo 1 > kept/a.json")
	w.expect(Change{dir + "/kept/a.json", FileChanged})
	for _, c := range w.changes() {
		if c.Path != dir+"/kept/a.json" {
			t.Errorf("%v is not asked for", c)
		}
	}
}

// TestStorm makes and removes many files, twice, while the reader of changes is slow.
func TestStorm(t *testing.T) {
	many := 20_000
	if fulltest.All() {
		many = 100_000
	}
	for _, m := range []Method{Fanotify, Inotify} {
		t.Run(string(m), func(t *testing.T) {
			dir := quietFolder(t) // disks make storms slow, too
			put(t, dir+"/kept/a.json")
			w := begin(t, options(t, m, dir))
			before := heap()
			for range 2 {
				shell(t, dir,
					fmt.Sprintf(
						"mkdir storm; cd storm; seq -f 'f%%06g.json' %[1]d | xargs touch; seq -f 'f%%06g.json' %[1]d "+
							"| xargs rm; cd ..; rmdir storm", many))
				if after := heap(); after > before+32<<20 {
					t.Errorf("the heap grew from %d to %d bytes", before, after)
				}
			}
			shell(t, dir, "mkdir -p a/b; echo 1 > a/b/c.json; rm kept/a.json")
			w.equal()
			if most := w.largestBatch(); most > maxGatheredChanges {
				t.Errorf("%d changes at once", most)
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

func TestCloseEndsRun(t *testing.T) {
	for _, m := range methods {
		w, err := Open(options(t, m, t.TempDir()))
		must(t, err)
		done := make(chan error)
		go func() { done <- w.Run(t.Context(), func([]Change) {}) }()
		must(t, w.Close(), w.Close())
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", m, err)
		}
		if len(w.Mounts()) == 0 {
			t.Errorf("%s: nothing is said of what was watched", m)
		}
	}
}

func TestUnknownMethod(t *testing.T) {
	for _, o := range []Options{{Method: FSEvents}, {Roots: []string{"relative"}}, {PackageDirs: []string{"a\x00"}}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
