package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKilledSaves: what a process that was killed during a save left is replaced by the next save, and does not stay.
func TestKilledSaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.db.state")
	if err := os.WriteFile(path+".new", []byte(`{"state": "Real-`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&savedState{State: RealTime, Path: "/srv"}).save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := loadState(path); err != nil || got.State != RealTime || got.Path != "/srv" {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if err := (&savedState{State: Idle}).save(filepath.Join(path, "x")); err == nil {
		t.Error("a state below a file is saved")
	}
}
