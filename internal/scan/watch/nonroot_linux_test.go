package watch

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const asNobody = "WATCH_TEST_NOBODY" // a directory; set in a process without privileges

// TestWithoutPrivileges runs itself again as another user.
func TestWithoutPrivileges(t *testing.T) {
	if dir := os.Getenv(asNobody); dir != "" {
		unprivileged(t, dir)
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("to become another user needs root and setpriv")
	}
	dir, err := os.MkdirTemp("", "watch")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Mkdir(dir+"/shut", 0o700), os.Mkdir(dir+"/mine", 0o755), os.Chown(dir+"/mine", 65534, 65534),
		os.Chmod(dir, 0o755))
	program := dir + "/watch.test"
	b, err := os.ReadFile("/proc/self/exe")
	must(t, err, os.WriteFile(program, b, 0o755))
	c := exec.Command(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", program,
		"-test.run=^TestWithoutPrivileges$", "-test.v")
	c.Env = append(os.Environ(), asNobody+"="+dir, "TMPDIR="+dir+"/mine")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWithoutPrivileges") {
		t.Errorf("%v: %s", err, out)
	}
}

func unprivileged(t *testing.T, dir string) {
	if _, err := Open(Options{Method: Fanotify}); err == nil {
		t.Error("fanotify is allowed")
	}
	w := begin(t, Options{Roots: []string{dir}})
	if m := w.how("/"); m.Method != Inotify {
		t.Errorf("%v", w.w.Mounts())
	}
	refused := false
	for _, m := range w.w.Mounts() {
		refused = refused || strings.Contains(m.Reason, "may not be read")
	}
	if !refused {
		t.Errorf("nothing is said of a folder that is shut: %v", w.w.Mounts())
	}
	shell(t, dir+"/mine", "mkdir -p a/b/c; echo 1 > a/b/c/d.json; mv a e; echo 1 > e/b/f.json")
	w.equal()
}
