//go:build linux

package tart

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// TestGrowFileSystem: the container of a guest fills a disk that has grown, unless the recovery partition follows it.
func TestGrowFileSystem(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	s := m.spec()
	s.DiskBytes = 20_000_000_000
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	grow := func() hv.Result {
		t.Helper()
		r, err := d.Exec(t.Context(), s.ID, hv.GrowFileSystemCommand(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	list := func() string {
		t.Helper()
		r, err := d.Exec(t.Context(), s.ID, hv.ScriptCommand([]byte("diskutil list disk0"), time.Minute))
		if err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return string(r.Stdout)
	}

	m.setKnob("recovery-partition", "")
	if r := grow(); r.Code != 1 || strings.TrimSpace(string(r.Stderr)) != string(hv.RefusalGrow) {
		t.Errorf("behind the recovery partition: code %d, %q", r.Code, r.Stderr)
	}
	if l := list(); !strings.Contains(l, "(free space)") {
		t.Errorf("the disk has no free space: %s", l)
	}
	m.removeKnob("recovery-partition")
	for range 2 { // the second time there is nothing to grow
		if r := grow(); r.Code != 0 {
			t.Errorf("code %d, %s", r.Code, r.Stderr)
		}
	}
	if l := list(); strings.Contains(l, "(free space)") || !strings.Contains(l, "19.5 GB") {
		t.Errorf("the container did not grow: %s", l)
	}

	m.setKnob("recovery-partition", "")
	if r := grow(); r.Code != 0 {
		t.Errorf("nothing to grow: code %d, %s", r.Code, r.Stderr)
	}
}
