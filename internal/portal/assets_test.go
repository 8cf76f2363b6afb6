package portal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSheets: every style that pages have a file for is in the one that they load.
func TestSheets(t *testing.T) {
	for name := range loadAssets().byName {
		if strings.HasPrefix(name, "css/") && name != sheet && !slices.Contains(sheets, name) {
			t.Errorf("%s is in no page", name)
		}
	}
}

// TestNoFormHidesItsID: a field called id hides the id of its form from scripts, so that what
// refreshes a page takes the form for another one and puts all of it in again: who clicks then has
// clicked in vain. Pages of a form alone are not refreshed.
func TestNoFormHidesItsID(t *testing.T) {
	alone := map[string]bool{"keyform.html": true, "keydelete.html": true}
	list, err := filepath.Glob("templates/*.html")
	if err != nil || len(list) < 20 {
		t.Fatal(list, err)
	}
	for _, path := range list {
		raw, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(raw), `name="id"`) && !alone[filepath.Base(path)] {
			t.Errorf("%s has a field called id, %v", path, err)
		}
	}
}
