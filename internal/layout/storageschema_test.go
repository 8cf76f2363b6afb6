package layout

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStorageSchema: a storage of another release is refused before anything in it is read or created.
func TestStorageSchema(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		`{"schema":1}`: "",
		`{"schema":2,"x":1}`: "Registry storage schema version 2 is not supported: this registry supports version 1; " +
			"start the release that wrote the storage",
		`{"schema":`: "read storage.json",
	} {
		base := t.TempDir()
		if err := os.Mkdir(filepath.Join(base, TemplatesDir), 0o750); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(base, storageFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read, readErr := Open(base)
		written, writeErr := Create(base, Hooks{})
		for _, err := range []error{readErr, writeErr} {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		}
		if _, err := os.Stat(filepath.Join(base, ImagesDir)); want != "" && err == nil {
			t.Errorf("%s: the refused storage was changed", text)
		}
		for _, d := range []*Dir{read, written} {
			if d != nil {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestTemplateSchema names both versions and what to do.
func TestTemplateSchema(t *testing.T) {
	const id = "aaaaaaaa-0000-4000-8000-000000000001"
	d, err := Create(t.TempDir(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dir := filepath.Join(d.Base(), TemplatesDir, id)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, templateFile), []byte(`{"schema":9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "Template schema version 9 is not supported: this registry supports version 1; start the release"
	if _, err := d.Template(id); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
