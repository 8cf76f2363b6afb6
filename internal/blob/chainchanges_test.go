package blob

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Every byte in which a disk differs from one of the versions below it is in a range of ChangedSince, and the
// ranges are in order and do not overlap.
func TestChangedSince(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk, _ := draw(t, nil)
		disks := [][]byte{disk}
		layers := []*Layer{whole(t, disk, EncodeOptions{})}
		for range rapid.IntRange(0, 5).Draw(t, "layers") {
			next, list := draw(t, disk)
			layers = append(layers, changed(t, patches{bytes.NewReader(next), list}, len(next),
				layers[len(layers)-1].Index().ChainID()))
			disk = next
			disks = append(disks, disk)
		}
		c, err := OpenChain(layers...)
		if err != nil {
			t.Fatal(err)
		}
		ids := c.ChainIDs()
		if len(ids) != len(layers) || ids[len(ids)-1] != c.ChainID() {
			t.Fatalf("%d chain IDs of %d layers", len(ids), len(layers))
		}
		for n := 1; n <= len(layers); n++ {
			checkChangedSince(t, c, n, disks)
		}
	})
}

func checkChangedSince(t *rapid.T, c *Chain, n int, disks [][]byte) {
	old, disk := disks[n-1], disks[len(disks)-1]
	runs, ok := c.ChangedSince(n, 1000)
	if !ok || n == len(disks) && len(runs) > 0 {
		t.Fatalf("since %d of %d: %v, %v", n, len(disks), runs, ok)
	}
	differs := make([]bool, max(len(old), len(disk)))
	for i := range differs {
		differs[i] = i >= len(old) || i >= len(disk) || old[i] != disk[i]
	}
	end := int64(0)
	for _, r := range runs {
		if r.Off < end || r.Len <= 0 {
			t.Fatalf("run %+v after %d", r, end)
		}
		end = r.Off + r.Len
		for i := r.Off; i < min(end, int64(len(differs))); i++ {
			differs[i] = false
		}
	}
	for i, d := range differs {
		if d {
			t.Fatalf("byte %d differs from version %d and is in none of %v", i, n, runs)
		}
	}
	if _, ok := c.ChangedSince(n, 0); ok != (len(runs) == 0) {
		t.Fatalf("%d ranges with a limit of 0: %v", len(runs), ok)
	}
}
