//go:build linux

package tart

import (
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// TestSavedGuest saves the changes of a guest, and starts another VM of the saved version.
func TestSavedGuest(t *testing.T) {
	t.Parallel()
	m := newMac(t)
	d := m.open(m.options())
	s := m.spec()
	if _, err := d.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Exec(t.Context(), s.ID, hv.ScriptCommand([]byte("echo kept >kept"), 0)); err != nil || r.Code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	saved, err := d.Save(t.Context(), s.ID, hv.SaveSpec{Dir: t.TempDir()})
	if err != nil || len(saved.Disks) != hv.AppleDisks {
		t.Fatalf("%+v, %v", saved, err)
	}
	if vm, err := d.Get(t.Context(), s.ID); err != nil || vm.Status != hv.Stopped || vm.Failure != "" {
		t.Errorf("after the save: %+v, %v", vm, err)
	}

	c := m.spec()
	for i := range c.Disks {
		if saved.Disks[i].ChangedBytes == 0 || saved.Disks[i].ChangedBytes > 1<<20 {
			t.Errorf("disk %d: %d bytes changed", i, saved.Disks[i].ChangedBytes)
		}
		c.Disks[i].Deltas = []string{saved.Disks[i].Path}
	}
	if _, err = d.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r, err := d.Exec(t.Context(), c.ID, hv.Command{Path: "cat", Args: []string{"kept"}})
	if err != nil || string(r.Stdout) != "kept\n" {
		t.Errorf("the file of the saved guest: %+v, %v", r, err)
	}
}
