package portal

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// TestAssets: every file is sent as it is, plain and compressed.
func TestAssets(t *testing.T) {
	a := loadAssets()
	for name := range a.byName {
		want, err := assetFiles.ReadFile(assetDir + name)
		if err != nil && name != stylesheet {
			t.Fatal(err)
		}
		if name == stylesheet {
			want = a.byName[name].plain
		}
		for _, accept := range []string{"", "gzip"} {
			r := httptest.NewRequest(http.MethodGet, a.pathPrefix+name, nil)
			r.Header.Set("Accept-Encoding", accept)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			body := w.Body.Bytes()
			if size := w.Header().Get("Content-Length"); size != strconv.Itoa(len(body)) {
				t.Errorf("%s has %d bytes, its length is given as %s", name, len(body), size)
			}
			if w.Header().Get("Content-Encoding") == "gzip" {
				unpacked, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(unpacked); err != nil {
					t.Fatal(err)
				}
			}
			if len(body) == 0 || !bytes.Equal(body, want) {
				t.Errorf("%s: %d bytes, want %d", name, len(body), len(want))
			}
		}
	}
}

// TestTemplates: every page can be parsed; each is only when it is called for.
func TestTemplates(t *testing.T) {
	for name, load := range pageTemplates() {
		for _, part := range []string{"page", "part"} {
			if load().Lookup(part) == nil {
				t.Errorf("%s has no %s", name, part)
			}
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
