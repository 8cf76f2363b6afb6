package buildyard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestMain lets the scripts run this very binary as the program.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"buildyard": func() { cli.Main(buildyard.Main) }})
}

// TestScripts runs the scripts in testdata for the commands that call a controller. Each script has
// its own controller at $SVC_CONTROLLER.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, Setup: cloud,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"until": until, "code": code, "nodes": nodes,
			"terminal": terminal, "put": put, "guard": guard, "secretless": secretless,
		},
	})
}

// cloud starts a controller with its registry for a script.
func cloud(env *testscript.Env) error {
	settings := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0", "SVC_LOG_LEVEL": "error",
		"SVC_INSTANCE_TIME_OUT":  "1s",
		"SVC_DISK_ALARM":         "0B", // the disk of the tests may be nearly full
		"SVC_DATA_DIR":           filepath.Join(env.WorkDir, ".controller"),
		"SVC_REGISTRY_BASE_PATH": filepath.Join(env.WorkDir, ".registry"),
	}
	if filepath.Base(env.WorkDir) == "script-record" {
		settings["SVC_ENABLE_EVENT_LOGGING"], settings["SVC_ENABLE_CENTRAL_LOGGING"] = "true", "true"
		settings["SVC_LOG_LEVEL"] = "info"
	}
	s := &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err := s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := settings[key]
		return v, ok
	}})
	if err != nil {
		return err
	}
	if err := s.Open(context.Background()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	env.Defer(func() {
		cancel()
		<-done
		_ = s.Close()
	})
	env.Values[serviceKey{}] = s
	env.Setenv("SVC_CONTROLLER", s.URL())
	env.Setenv("REGISTRY", s.RegistryURL())
	env.Setenv("HOME", env.WorkDir)
	return nil
}

// until runs a command again and again until its output matches: until REGEXP COMMAND...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command args...")
	}
	want := regexp.MustCompile(args[0])
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if last = ts.ReadFile("stdout") + ts.ReadFile("stderr"); err == nil && want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%v never said %s; last:\n%s", args[1:], args[0], last)
}

// serviceKey is where a script's controller is found.
type serviceKey struct{}

// template is the id of the template that scripts with nodes have: debian, with the tags
// v1 and v2.
const template = "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22"

// nodes returns a script simulated nodes mac-0, mac-1 ... and a template: nodes COUNT [FLAG...].
func nodes(ts *testscript.TestScript, neg bool, args []string) {
	count, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: nodes count")
	}
	s, _ := ts.Value(serviceKey{}).(*buildyard.ControllerService)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- fleet.Run(ctx, fleet.Options{
			NodeCount: count, ControllerURL: s.URL(), JoinToken: s.JoinToken(), NamePrefix: "mac", Capacity: 2,
			RealPulls: true,
			DataDir:   ts.MkAbs(".nodes"),
			Logger:    slog.New(slog.DiscardHandler), Version: "test",
		})
	}()
	ts.Defer(func() {
		cancel()
		<-done
	})
	for i, tag := range []string{"v1", "v2"} {
		ts.Check(push(ctx, s.RegistryURL(), ts.MkAbs(".disk"), tag, i))
	}
	ts.Setenv("TEMPLATE", template)
}

// put puts a file on the file server: put NAME FILE.
func put(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: put name file")
	}
	r, err := client.NewRegistry(ts.Getenv("REGISTRY"), client.Options{})
	ts.Check(err)
	_, err = r.Upload(context.Background(), args[0], strings.NewReader(ts.ReadFile(args[1])), "")
	ts.Check(err)
}

// push puts a version of the template into the registry.
func push(ctx context.Context, registry, disk, tag string, content int) error {
	store, err := transfer.New(transfer.Options{BaseURL: registry})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := os.WriteFile(disk, []byte{byte(content)}, 0o600); err != nil {
		return err
	}
	config, err := json.Marshal(api.TemplateConfig{
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives:   []api.ConfigDrive{{Controller: "virtio-blk", File: "disk.img", Format: "raw"}},
		NetworkCards: []api.ConfigNIC{{Mode: "shared"}},
	})
	if err != nil {
		return err
	}
	_, err = store.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{ID: template, Name: "debian", Tag: tag, Arch: "amd64", Config: config},
		Files:   []transfer.PushFile{{Name: "disk.img", Path: disk, Kind: api.FileDisk, Format: "raw"}},
	})
	return err
}

// code runs the program and looks at its exit code: code NUMBER ARGS...
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code number args...")
	}
	err := ts.Exec("buildyard", args[1:]...)
	got := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		got = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("buildyard %v ends with %d, want %s", args[1:], got, args[0])
	}
}
