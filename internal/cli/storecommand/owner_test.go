package storecommand

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwner refuses another user than the owner of a store, and says how to continue.
func TestOwner(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := checkOwnerOf(dir, "buildyard store check", os.Geteuid()); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := checkOwnerOf(filepath.Join(dir, "missing"), "buildyard store check", os.Geteuid()+1); err != nil {
		t.Errorf("no directory: %v", err)
	}
	err = checkOwnerOf(dir, "buildyard store check", os.Geteuid()+1)
	if err == nil {
		t.Fatal("another user may open the store")
	}
	for _, want := range []string{
		dir + " belongs to the user " + me.Username, "runuser -u " + me.Username + " -- buildyard store check",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q has no %q", err, want)
		}
	}
}
