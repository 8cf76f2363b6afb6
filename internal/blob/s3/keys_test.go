package s3

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// FuzzKeys: what a key says is what it is made of.
func FuzzKeys(f *testing.F) {
	digest := strings.Repeat("ab", 32)
	for _, key := range []string{
		"images_dir/" + digest + ".ank", "state_file_dir/" + digest + ".ank@id", "images_dir/" + digest + ".ank@",
		"images_dir/x/" + digest + ".ank", "trash_dir/1-state-" + digest + ".ank",
		"trash_dir/1-damaged-" + digest + ".ank", "trash_dir/x-" + digest + ".ank",
		"trash_dir/1-damaged-state-" + digest + ".ank", "",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if root, state, stream, ok := parseLayerKey(key); ok {
			again := layerKey(root, state)
			if stream != "" {
				again += "@" + stream
			}
			if again != key {
				t.Errorf("%q is read as %q", key, again)
			}
		}
		if m, ok := parseMarkerKey(key); ok && !strings.HasSuffix(key, m.digest.String()+layout.LayerSuffix) {
			t.Errorf("%q is the marker of %s", key, m.digest)
		}
	})
}

func TestLayerKey(t *testing.T) {
	root := blob.Digest{1}
	for _, state := range []bool{false, true} {
		got, gotState, stream, ok := parseLayerKey(layerKey(root, state) + "@id")
		if !ok || got != root || gotState != state || stream != "id" {
			t.Errorf("%s, %t, %q, %t", got, gotState, stream, ok)
		}
	}
}
