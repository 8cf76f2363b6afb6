package objects

import (
	"path"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/layout"
)

const templateID = "aaaaaaaa-0000-4000-8000-000000000001"

// FuzzKeys: only keys that this package writes name a template, and such a key stays below its directory.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{
		layout.TemplateFilePath(templateID), "vm_dir/" + templateID + "/../x", "vm_dir//template.json", "vm_dir/x",
		path.Join(layout.TrashDir, layout.TrashName(7, templateID)), "trash_dir/1-x", "trash_dir/-1-" + templateID,
		"trash_dir/9999999999999999999999-" + templateID, "",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if id, ok := templateOfKey(key); ok && !strings.HasPrefix(key, layout.TemplatePath(id)+"/") {
			t.Errorf("%q is of template %q", key, id)
		}
		if id, _, ok := parseMarkerKey(key); ok {
			if clean, valid := layout.ParseID(id); !valid || clean != id || !strings.HasSuffix(key, "-"+id) {
				t.Errorf("%q is the marker of %q", key, id)
			}
		}
	})
}

func TestMarkerKey(t *testing.T) {
	id, stamp, ok := parseMarkerKey(path.Join(layout.TrashDir, layout.TrashName(7, templateID)))
	if !ok || id != templateID || stamp != 7 {
		t.Errorf("%q, %d, %t", id, stamp, ok)
	}
	for _, key := range []string{
		"trash_dir/7-" + strings.Repeat("a", 64) + ".ank", "vm_dir/7-" + templateID, "trash_dir/7",
	} {
		if _, _, ok := parseMarkerKey(key); ok {
			t.Errorf("%q is the marker of a template", key)
		}
	}
}
