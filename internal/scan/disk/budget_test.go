package disk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk/luks"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// writer has what is written at its offsets.
type writer []byte

func (w writer) WriteAt(p []byte, off int64) (int, error) { return copy(w[off:], p), nil }

// Disks share the limit of the work of trying keys, and try none once the scan is canceled.
func TestKeysOfScan(t *testing.T) {
	apfs := make(writer, 4<<20)
	if _, err := apfstest.Write(apfs, apfstest.Container{
		Volumes: []apfstest.Volume{{Name: "v", Passwords: []string{"secret"}}},
	}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"APFS": apfs, "LUKS 1": treetest.Unpacked(t, "luks/testdata/luks1.img.zst"),
		"LUKS 2": treetest.Unpacked(t, "luks/testdata/luks2-ext4.img.zst"),
	} {
		keys := NewKeys([][]byte{[]byte("secret")})
		for range 2 {
			vols, skipped, err := VolumesWithKeys(t.Context(), bytes.NewReader(b), int64(len(b)), keys)
			if err != nil || len(vols) != 1 || len(skipped) > 0 {
				t.Errorf("%s: %+v, %+v, %v", name, vols, skipped, err)
			}
		}
		keys.luks, keys.apfs = &luks.Budget{}, &keybag.Budget{} // as after other disks
		vols, skipped, err := VolumesWithKeys(t.Context(), bytes.NewReader(b), int64(len(b)), keys)
		if err != nil || len(vols) > 0 || len(skipped) != 1 || !skipped[0].MayHavePackages ||
			!strings.Contains(skipped[0].Reason, "the key derivations of a scan would take too much time") {
			t.Errorf("%s, nothing left: %+v, %+v, %v", name, vols, skipped, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = VolumesWithKeys(ctx, bytes.NewReader(b), int64(len(b)), NewKeys(keys.list))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s, canceled: %v", name, err)
		}
	}
}
