package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

// awaitLog waits until a service's log in a directory has a text.
func awaitLog(t *testing.T, dir, service, text string) {
	t.Helper()
	var all string
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		all = ""
		files, _ := filepath.Glob(filepath.Join(dir, service, "*.log"))
		for _, name := range files {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all += string(raw)
		}
		if strings.Contains(all, text) {
			return
		}
	}
	t.Fatalf("the log of %s in %s lacks %q:\n%s", service, dir, text, all)
}

// TestLogsComeTogether: controller, registry and a node write to the central logs, and where they are asked to into
// files of their own.
func TestLogsComeTogether(t *testing.T) {
	dir := t.TempDir()
	own, central := filepath.Join(dir, "logs"), filepath.Join(dir, "r", "files", "central-logs")
	s, stop := startController(t, dir, true,
		map[string]string{"log-level": "info", "log-dir": own, "enable-central-logging": "true"})
	at, err := datadir.At(filepath.Join(dir, "node"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = buildnode.Join(t.Context(),
		buildnode.JoinOptions{
			DataDir: at, ControllerURL: s.URL(), Token: s.JoinToken(), Host: "192.0.2.7", DiskReserve: "64MB",
			Capacity: 2,
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	node := make(chan int, 1)
	go func() {
		node <- buildnode.Main(ctx, []string{"run", "--driver", "sim", "--data-dir", at.Path()},
			buildnode.Streams{Out: io.Discard, Err: io.Discard})
	}()
	for _, dir := range []string{own, central} {
		awaitLog(t, dir, "controller", `"msg":"controller started"`)
		awaitLog(t, dir, "registry", `"msg":"registry started"`)
	}
	awaitLog(t, central, "node", ` 192.0.2.7 {"time":"`)
	awaitLog(t, central, "node", `"msg":"agent started"`)
	cancel()
	if code := <-node; code != 0 {
		t.Errorf("the node ends with %d", code)
	}
	stop()
	if nodes, _ := filepath.Glob(own + "/node/*"); len(nodes) > 0 {
		t.Error("the node's log is among the controller's own")
	}
}

// TestLogsOfAControllerAlone go to its registry over the wire.
func TestLogsOfAControllerAlone(t *testing.T) {
	dir := t.TempDir()
	r, stopRegistry := registryAt(t, dir, "127.0.0.1:0")
	defer stopRegistry()
	_, stop := startController(t, t.TempDir(), false,
		map[string]string{"registry": r.URL(), "log-level": "info", "enable-central-logging": "true"})
	central := filepath.Join(dir, "files", "central-logs")
	awaitLog(t, central, "controller", `"msg":"controller started"`)
	awaitLog(t, central, "registry", `"msg":"registry started"`)
	stop()
}

// registryAt runs a registry on an address until stop is called.
func registryAt(t *testing.T, dir, address string) (r *RegistryService, stop func()) {
	t.Helper()
	fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
	cli.AddFlags(fs, config.RegistryTable)
	for flag, value := range map[string]string{
		"listen-addr": address, "base-path": dir, "log-level": "info", "enable-central-logging": "true",
	} {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	r = &RegistryService{Stderr: io.Discard}
	if err := r.ParseFlags(config.Sources{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := errors.Join(<-done, r.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestTwoControllersShipConcurrently: two controllers of one machine ship into one file while the registry is away
// for a while. All lines of both arrive, those of each in their order.
func TestTwoControllersShipConcurrently(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	settings, err := config.Load(config.ControllerTable, config.Sources{Env: func(key string) (value string, ok bool) {
		if ok = key == config.CentralLogging; ok {
			value = "true"
		}
		return value, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, stop := registryAt(t, dir, address)
	const lines = 3000
	var outputs []*logOutput
	var work sync.WaitGroup
	for which := range 2 {
		o, err := openLog(io.Discard, settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.writeRemote(&upstream{address: "http://" + address}); err != nil {
			t.Fatal(err)
		}
		outputs = append(outputs, o)
		log, err := o.logger("info", "controller")
		if err != nil {
			t.Fatal(err)
		}
		end := o.start(t.Context())
		t.Cleanup(end)
		work.Go(func() {
			for i := range lines {
				log.Info("said", "which", which, "no", i)
				if i%100 == 0 {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	awaitLog(t, filepath.Join(dir, "files", "central-logs"), "controller", `"no":`)
	stop()
	work.Wait()
	_, stop = registryAt(t, dir, address)
	defer stop()
	for which := range 2 {
		awaitLog(t, filepath.Join(dir, "files", "central-logs"), "controller",
			fmt.Sprintf(`"which":%d,"no":%d}`, which, lines-1))
	}
	files, err := filepath.Glob(filepath.Join(dir, "files", "central-logs", "controller", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	next := [2]int{}
	for _, m := range regexp.MustCompile(`"which":(\d),"no":(\d+)}\n`).FindAllStringSubmatch(string(raw), -1) {
		which, _ := strconv.Atoi(m[1])
		if no, _ := strconv.Atoi(m[2]); no == next[which] {
			next[which]++
		} else if no > next[which] { // fewer are batches whose answer was cut off: they come again
			t.Fatalf("%d of %d comes before %d", no, which, next[which])
		}
	}
	for which, o := range outputs {
		m := metrictest.Values(logs.Families(o.runningShippers))
		if next[which] != lines || m["buildyard_log_lines_dropped_total{central}"] != 0 {
			t.Errorf("%d of %d: %v", next[which], which, m)
		}
	}
}

// TestLogDirThatCannotBe fails the start with one line that names the setting.
func TestLogDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cli.AddFlags(fs, config.ControllerTable)
	if err := fs.Set("log-dir", file); err != nil {
		t.Fatal(err)
	}
	s := &ControllerService{Stderr: io.Discard}
	if err := s.ParseFlags(config.Sources{Flags: fs}); err == nil || !strings.HasPrefix(err.Error(), "SVC_LOG_DIR: ") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
