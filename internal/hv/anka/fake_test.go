//go:build linux

package anka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/clitest"
)

// The test binary is also an agent that starts a VM and is killed meanwhile.
const (
	agentEnv = "TEST_ANKA_AGENT" // directory of the Mac
	waitTime = 2 * time.Minute   // for a condition that comes true within a second on an idle machine
)

func TestMain(m *testing.M) {
	if root := os.Getenv(agentEnv); root != "" {
		mac := &testMac{root: root}
		d, err := Open(context.Background(), mac.options())
		if err == nil {
			_, err = d.Start(context.Background(), mac.spec("interrupted"))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fake.Main(m)
}

var fake = clitest.New("anka")

// testMac is a Mac whose user has a library and an archive to start VMs from.
type testMac struct {
	*testing.T
	root string // HOME of the user
	vms  atomic.Int32
}

func newMac(t *testing.T) *testMac {
	t.Helper()
	m := &testMac{T: t, root: t.TempDir()}
	// Each user of a Mac has a library, so this program is that of one user.
	script := fmt.Sprintf("#!/bin/sh\nHOME=%s\nexport HOME\nexec %s \"$@\"\n", m.root, fake.Path(t))
	clitest.WriteScript(t, m.program(), script)
	t.Cleanup(func() { clitest.KillAll(t, m.root) })
	m.anka("create", "base", "14.5", "-d", "1G")
	m.anka("modify", "base", "port", "screen", "5900")
	m.anka("export", "base", m.archive())
	m.anka("delete", "--yes", "base")
	m.knob("ssh", "22")
	return m
}

func (m *testMac) program() string { return filepath.Join(m.root, "anka") }
func (m *testMac) archive() string { return filepath.Join(m.root, "base.archive") }

// anka runs a command that succeeds.
func (m *testMac) anka(args ...string) string {
	m.Helper()
	out, err := exec.CommandContext(m.Context(), m.program(), append([]string{"-j"}, args...)...).CombinedOutput()
	if err != nil {
		m.Fatalf("anka %q: %v: %s", args, err, out)
	}
	return string(out)
}

// knob sets a knob of the fake; see its package comment.
func (m *testMac) knob(name, value string) {
	m.Helper()
	path := filepath.Join(m.root, "anka-knobs", name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(value), 0o600))
	if err != nil {
		m.Fatal(err)
	}
}

func (m *testMac) unsetKnob(name string) {
	m.Helper()
	if err := os.Remove(filepath.Join(m.root, "anka-knobs", name)); err != nil {
		m.Fatal(err)
	}
}

func (m *testMac) options() Options {
	return Options{Dir: filepath.Join(m.root, "node"), Program: m.program(), Bridge: "en0", VLANs: []int{10, 11}}
}

// open opens a driver over the records of the node.
func (m *testMac) open() *Driver {
	m.Helper()
	o := m.options()
	o.Logger = slog.New(slog.NewTextHandler(testWriter{m.T}, nil))
	d, err := Open(m.Context(), o)
	if err != nil {
		m.Fatal(err)
	}
	return d
}

// spec returns a spec that starts.
func (m *testMac) spec(id string) hv.Spec {
	return hv.Spec{
		ID: id, Name: "macOS", UUID: uuid.NewSHA1(uuid.Nil, []byte(id)).String(), CPUs: 2, MemoryMB: 4096,
		Apple: &hv.Apple{}, BootTimeout: waitTime, Disks: []hv.Disk{{Path: m.archive(), Format: hv.FormatAnka}},
	}
}

func (m *testMac) nextSpec() hv.Spec { return m.spec(fmt.Sprintf("vm-%d", m.vms.Add(1))) }

// start starts a VM.
func (m *testMac) start(d *Driver, s hv.Spec) hv.VM {
	m.Helper()
	vm, err := d.Start(m.Context(), s)
	if err != nil {
		m.Fatal(err)
	}
	return vm
}

func (m *testMac) eventually(what string, isTrue func() bool) {
	m.Helper()
	for end := time.Now().Add(waitTime); !isTrue(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			m.Fatalf("%s: not within %s", what, waitTime)
		}
	}
}

// library returns the names of the VMs in the library that are not images.
func (m *testMac) library() (names []string) {
	m.Helper()
	for _, part := range strings.Split(m.anka("list", "-f", "name"), `"name":"`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); !strings.HasPrefix(name, imagePrefix) {
			names = append(names, name)
		}
	}
	return names
}

// testWriter writes lines to the log of a test that runs.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", b)
	}
	return len(b), nil
}
