package imagescan_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/cli/imagescan"
	"github.com/buildyard/buildyard/internal/scan/container/containertest"
	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

// TestMain lets the scripts run this test binary as the programs.
func TestMain(m *testing.M) {
	as := func(run func(context.Context, []string, cli.Streams) int) func() { return func() { cli.Main(run) } }
	testscript.Main(m, map[string]func(){"imagescan": as(imagescan.Main), "buildyard": as(buildyard.Main)})
}

// TestScripts runs the scripts in testdata. All but license.txtar have a license and a database of
// the advisories in feed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"licence": licence, "apfs": apfs,
			"template": template, "locked": locked, "evil": evil, "signalled": signalled,
			"controller": controller, "unpack": unpack, "goprogram": goProgram, "container": container,
			"upstream": upstream,
		},
	})
}

// licence creates an authority that the user trusts, and its license in the current directory.
func licence(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: licence")
	}
	key := filepath.Join(ts.Getenv("XDG_CONFIG_HOME"), "buildyard", "authority.key")
	ts.Check(os.MkdirAll(filepath.Dir(key), 0o755))
	ts.Check(ts.Exec("buildyard", "license", "keygen", "--key", key))
	ts.Check(ts.Exec("buildyard", "license", "issue", "--product", "image-scanner", "--key", key))
	ts.Check(os.WriteFile(ts.MkAbs("scanner.lic"), []byte(ts.ReadFile("stdout")), 0o644))
}

// container writes an image of a directory: container DIR FILE docker, or the compression of layers.
func container(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: container DIR FILE docker|gzip|zstd")
	}
	layer, err := containertest.DirLayer(ts.MkAbs(args[0]))
	ts.Check(err)
	files := containertest.Docker(layer)
	if args[2] != "docker" {
		files, err = containertest.Layout(containertest.Compression(args[2]), layer)
		ts.Check(err)
	}
	b, err := files.Tar()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

// unpack writes a disk of the tests of internal/scan/disk: unpack PACKED FILE.
func unpack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: unpack PACKED FILE")
	}
	b, err := os.ReadFile(filepath.Join("../../scan/disk", args[0]))
	ts.Check(err)
	d, err := zstd.NewReader(nil)
	ts.Check(err)
	defer d.Close()
	b, err = d.DecodeAll(b, nil)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

// goProgram copies this test binary, which is a Go program: goprogram FILE.
func goProgram(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: goprogram FILE")
	}
	self, err := os.Executable()
	ts.Check(err)
	b, err := os.ReadFile(self)
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o755))
}

// upstream starts a server that imitates the sources of advisories, and writes the options of "db sync" that name it to
// a file, and its URL to url.txt: upstream FILE.
func upstream(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: upstream FILE")
	}
	u, stop := upstreamtest.Start()
	ts.Defer(stop)
	var options strings.Builder
	for name, url := range u.URLs() {
		options.WriteString(" --source-url " + name + "=" + url)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(options.String()), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("url.txt"), []byte(u.URL), 0o644))
}

// locked holds a lock as another process does, until the script ends: locked FILE.
func locked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: locked FILE")
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR|os.O_CREATE, 0o644)
	ts.Check(err)
	ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	ts.Defer(func() { _ = f.Close() })
}

// evil makes a directory evil, with a package whose name has terminal control characters, and one
// in a directory whose name has two lines and that is too large to be read.
func evil(ts *testscript.TestScript, _ bool, _ []string) {
	folder := ts.MkAbs("evil/node_modules/b")
	ts.Check(os.MkdirAll(folder, 0o755))
	ts.Check(os.WriteFile(filepath.Join(folder, "package.json"),
		[]byte("{\"name\": \"b\u009b1m\u202ec\", \"version\": \"1\"}"), 0o644))
	folder = ts.MkAbs("evil/x\na line of its own/node_modules/c")
	ts.Check(os.MkdirAll(folder, 0o755))
	ts.Check(os.WriteFile(filepath.Join(folder, "package.json"), nil, 0o644))
	ts.Check(os.Truncate(filepath.Join(folder, "package.json"), 1<<32))
}

// signalled runs the program until its error stream shows that it waits, sends it a signal, and
// compares the exit status: signalled SIGNAL STATUS ARG...
func signalled(ts *testscript.TestScript, neg bool, args []string) {
	sig := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM}[args[0]]
	if neg || sig == nil || len(args) < 3 {
		ts.Fatalf("usage: signalled INT|TERM STATUS ARG...")
	}
	fifo := ts.MkAbs("signalled." + args[0])
	ts.Check(syscall.Mkfifo(fifo, 0o600))
	ts.Check(ts.Exec("sh", "-c", "imagescan \"$@\" --vex "+fifo+" 2> said & pid=$!; exec 3> "+fifo+"; kill -"+args[0]+
		" $pid; wait $pid; echo status $? > status", "sh", args[2], args[3]))
	if got := ts.ReadFile("status"); got != "status "+args[1]+"\n" {
		ts.Fatalf("%s and it said %s", got, ts.ReadFile("said"))
	}
}
