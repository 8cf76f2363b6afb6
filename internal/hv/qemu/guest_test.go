package qemu_test

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// guest returns the demo guest's disk and waits for a slot of one processor. It skips the test
// where real guests cannot run.
func guest(t testing.TB) string {
	t.Helper()
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	return disk
}

var serial atomic.Int64

// newSpec makes a spec that boots image.
func newSpec(image, format string) hv.Spec {
	n := serial.Add(1)
	return hv.Spec{
		ID: fmt.Sprintf("vm-%d", n), Name: fmt.Sprintf("mgmtManaged-test, number %d", n), UUID: newUUID(),
		Disks: []hv.Disk{{Path: image, Format: format}}, CPUs: 1, MemoryMB: 256,
	}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// open opens a driver over dir and closes it with the test.
func open(t testing.TB, dir string) *qemu.Driver {
	t.Helper()
	d, err := qemu.Open(t.Context(), qemu.Options{Dir: dir, StopTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
