//go:build linux

package tart

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/clitest"
)

// The test binary is also the forwarder of its VMs, and an agent that starts a VM.
const (
	forwarderEnv = "TEST_TART_FORWARDER"
	agentEnv     = "TEST_TART_AGENT" // an agentStart
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == forwarderEnv {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if err := Forward(context.Background(), os.Args[2:], log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(agentEnv); text != "" {
		os.Exit(startInAgent(text))
	}
	fake.Main(m)
}

// agentStart is a start by an agent that is another process of the test binary.
type agentStart struct {
	Home, Program, LeasesFile string
	Forwarder                 []string
	Spec                      hv.Spec
}

func startInAgent(text string) (code int) {
	var a agentStart
	err := json.Unmarshal([]byte(text), &a)
	if err == nil {
		var d *Driver
		if d, err = Open(context.Background(), Options{
			Home: a.Home, Program: a.Program, LeasesFile: a.LeasesFile, Forwarder: a.Forwarder,
		}); err == nil {
			_, err = d.Start(context.Background(), a.Spec)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

var fake = clitest.New("tart")

// testMac is a Mac with a base image.
type testMac struct {
	t       *testing.T
	root    string // has the homes of its nodes, the knobs of the fake and the leases
	program string
	base    string // directory of the base image, in the form of tart
	apple   hv.Apple
	nodes   atomic.Int32
	vms     atomic.Int32
}

func newMac(t *testing.T) *testMac {
	t.Helper()
	m := &testMac{t: t, program: fake.Path(t)}
	root, err := os.MkdirTemp("", "mac-") // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	m.root = root
	t.Cleanup(func() {
		clitest.KillAll(t, root)
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	home := filepath.Join(root, "base")
	ipsw := filepath.Join(root, "restore.ipsw")
	if err := os.WriteFile(ipsw, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), m.program, "create", "base", "--from-ipsw", ipsw, "--disk-size", "1")
	cmd.Env = append(os.Environ(), "TART_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.base = filepath.Join(home, "vms", "base")
	c, err := ReadBundleConfig(m.base)
	if err != nil {
		t.Fatal(err)
	}
	m.apple = hv.Apple{HardwareModel: c.HardwareModel, MachineID: c.MachineID, MinCPUs: c.MinCPUs}
	return m
}

// setKnob sets a knob of the fake; see its package comment.
func (m *testMac) setKnob(name, value string) {
	m.t.Helper()
	path := filepath.Join(m.root, "tart-knobs", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// removeKnob removes a knob of the fake.
func (m *testMac) removeKnob(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.root, "tart-knobs", name)); err != nil {
		m.t.Fatal(err)
	}
}

// options are those of a driver with a home of its own.
func (m *testMac) options() Options {
	return Options{
		Home: filepath.Join(m.root, fmt.Sprintf("node%d", m.nodes.Add(1))), Program: m.program,
		LeasesFile: filepath.Join(m.root, "dhcpd_leases"), Forwarder: []string{os.Args[0], forwarderEnv},
		Logger: slog.New(slog.NewTextHandler(testWriter{m.t}, nil)),
	}
}

// open opens a driver.
func (m *testMac) open(o Options) *Driver {
	m.t.Helper()
	d, err := Open(m.t.Context(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// spec returns a spec that starts.
func (m *testMac) spec() hv.Spec {
	apple := m.apple
	return hv.Spec{
		ID: fmt.Sprintf("vm-%d", m.vms.Add(1)), Name: "macOS", UUID: uuid.NewString(), CPUs: 2, MemoryMB: 4096,
		Apple: &apple, BootTimeout: time.Minute,
		Disks: []hv.Disk{
			{Path: filepath.Join(m.base, rootFile), Format: "raw"},
			{Path: filepath.Join(m.base, auxFile), Format: "raw"},
		},
	}
}

// testWriter writes lines to the log of a test that runs.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", b)
	}
	return len(b), nil
}
