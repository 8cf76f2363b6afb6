package hostscan_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/hostscan"
	"github.com/buildyard/buildyard/internal/cli/imagescan"
	"github.com/buildyard/buildyard/internal/rest/porttest"
)

// TestMain lets the scripts run this test binary as the programs.
func TestMain(m *testing.M) {
	as := func(run func(context.Context, []string, cli.Streams) int) func() { return func() { cli.Main(run) } }
	testscript.Main(m, map[string]func(){"hostscan": as(hostscan.Main), "imagescan": as(imagescan.Main)})
}

// TestScripts runs the scripts in testdata. Each script has its own port in PORT, and state below
// WORK.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			for _, name := range []string{"CACHE", "CONFIG", "STATE"} {
				env.Setenv("XDG_"+name+"_HOME", filepath.Join(env.WorkDir, strings.ToLower(name)))
			}
			addr, err := porttest.FreeAddr(t.Context(), "127.0.0.1")
			if err != nil {
				return err
			}
			_, port, _ := net.SplitHostPort(addr)
			env.Setenv("PORT", port)
			env.Values["world"] = &world{}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": daemon, "hup": hup, "end": end, "until": until, "says": says, "signalled": signalled,
		},
	})
}

// condition reports whether a condition of the scripts holds: "installed" that the commands find the token of the
// system's host scanner, which is not below WORK.
func condition(name string) (bool, error) {
	if name != "installed" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	_, err := hostscan.ReadToken("/var/lib/buildyard/hostscan/token")
	return err == nil, nil
}

// world has the service that a script runs.
type world struct{ service *exec.Cmd }

func of(ts *testscript.TestScript) *world { return ts.Value("world").(*world) }

// program returns a command that runs as the script's own would.
func program(ts *testscript.TestScript, args ...string) *exec.Cmd {
	path := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if at := filepath.Join(dir, "hostscan"); path == "" {
			if _, err := os.Stat(at); err == nil {
				path = at
			}
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"HOME", "PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "GOCOVERDIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	return cmd
}

// eventually retries until the condition is true, and reports whether it was within a minute: other tests may use the
// processors.
func eventually(is func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return is()
}

// daemon starts the service with the configuration file hostscan.yml, to which it prepends
// listen-addr, and waits until it answers: daemon [HOST [ARG...]].
func daemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || of(ts).service != nil {
		ts.Fatalf("usage: daemon [HOST [ARG...]], once")
	}
	host, more := "127.0.0.1", []string{}
	if len(args) > 0 {
		host, more = args[0], args[1:]
	}
	config := "listen-addr: '" + net.JoinHostPort(host, ts.Getenv("PORT")) + "'\n" + ts.ReadFile("hostscan.yml")
	ts.Check(os.WriteFile(ts.MkAbs("running.yml"), []byte(config), 0o600))
	cmd := program(ts, append([]string{"serve", "-c", ts.MkAbs("running.yml")}, more...)...)
	said, err := os.Create(ts.MkAbs("said"))
	ts.Check(err)
	cmd.Stderr = said
	ts.Check(cmd.Start())
	_ = said.Close()
	of(ts).service = cmd
	ts.Defer(func() {
		if of(ts).service != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	if !eventually(func() bool { return strings.Contains(ts.ReadFile("said"), "listens on") }) {
		ts.Fatalf("the service does not begin: %s", ts.ReadFile("said"))
	}
}

// hup makes the service read a configuration again: hup FILE.
func hup(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hup FILE")
	}
	first, _, _ := strings.Cut(ts.ReadFile("running.yml"), "\n")
	ts.Check(os.WriteFile(ts.MkAbs("running.yml"), []byte(first+"\n"+ts.ReadFile(args[0])), 0o600))
	ts.Check(of(ts).service.Process.Signal(syscall.SIGHUP))
}

// end ends the service by a signal, and checks its exit status: end SIGNAL STATUS.
func end(ts *testscript.TestScript, neg bool, args []string) {
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || sig[args[0]] == 0 {
		ts.Fatalf("usage: end INT|TERM|KILL STATUS")
	}
	cmd := of(ts).service
	of(ts).service = nil
	ts.Check(cmd.Process.Signal(sig[args[0]]))
	_ = cmd.Wait()
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("the service ended with %s: %s", got, ts.ReadFile("said"))
	}
}

// until repeats the program until it prints a text: until TEXT ARG...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until TEXT ARG...")
	}
	var out []byte
	if !eventually(func() bool {
		out, _ = program(ts, args[1:]...).CombinedOutput()
		return bytes.Contains(out, []byte(args[0]))
	}) {
		ts.Fatalf("%q never says %q but %s", args[1:], args[0], out)
	}
}

// says waits until a file has a matching line: says FILE PATTERN.
func says(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: says FILE PATTERN")
	}
	pattern := regexp.MustCompile(args[1])
	if !eventually(func() bool { return pattern.MatchString(ts.ReadFile(args[0])) }) {
		ts.Fatalf("%s never says %s but %s", args[0], args[1], ts.ReadFile(args[0]))
	}
}

// signalled interrupts a full scan of a directory while it runs, and checks its exit status and its
// output: signalled DIR STATUS TEXT. The directory is made large.
func signalled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: signalled FOLDER STATUS TEXT")
	}
	for i := range 3000 {
		folder := ts.MkAbs(filepath.Join(args[0], fmt.Sprint(i), "node_modules", "x"))
		ts.Check(os.MkdirAll(folder, 0o755))
		ts.Check(os.WriteFile(filepath.Join(folder, "package.json"),
			fmt.Appendf(nil, `{"name":"x%d","version":"1"}`, i), 0o644))
	}
	// On a machine with other work, the scan may end before the signal arrives.
	for range 50 {
		var said bytes.Buffer
		cmd := program(ts, "-p", ts.Getenv("PORT"), "full-scan", "-d", args[0])
		cmd.Stderr = &said
		ts.Check(cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
		}()
		if running(ts, ended) {
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
		<-ended
		got := fmt.Sprint(cmd.ProcessState.ExitCode())
		if got == args[1] && strings.Contains(said.String(), args[2]) {
			return
		}
		if got != "0" {
			ts.Fatalf("exit %s: %s", got, said.String())
		}
	}
	ts.Fatalf("the scan always ended before the signal")
}

// running waits until the service scans, and returns immediately then: a program that queries it may take longer than
// the scan. It returns false when the program that started the scan has ended.
func running(ts *testscript.TestScript, ended <-chan struct{}) bool {
	for {
		select {
		case <-ended:
			return false
		default:
		}
		r, err := http.Get("http://127.0.0.1:" + ts.Getenv("PORT") + "/v1/status")
		ts.Check(err)
		said, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		ts.Check(err)
		if bytes.Contains(said, []byte(`"Running Full"`)) {
			return true
		}
		time.Sleep(time.Millisecond)
	}
}
