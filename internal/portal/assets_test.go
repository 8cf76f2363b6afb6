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
		if strings.HasPrefix(name, "css/") && name != stylesheet && !slices.Contains(stylesheetFiles, name) {
			t.Errorf("%s is in no page", name)
		}
	}
}

// TestNoFormHidesItsID: a field called id hides the ID of its form from scripts, so that a refresh
// treats the form as another one and replaces it: a click at that moment has no effect. Pages of a
// form alone are not refreshed.
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
