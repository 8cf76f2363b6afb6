package fakeguest

import (
	"bytes"
	"strings"
	"testing"
)

// TestDiskutil: the container of a grown disk is enlarged once the table is repaired, unless the recovery partition
// follows it.
func TestDiskutil(t *testing.T) {
	t.Parallel()
	const before, after = 50_000_000_000, 100_000_000_000
	for _, hasRecovery := range []bool{false, true} {
		d := Disk{Bytes: after, TableBytes: before, SystemBytes: before, HasRecovery: hasRecovery}
		grown := map[bool]int64{false: after, true: before}[hasRecovery]
		free := map[bool]string{false: "", true: "(free space)"}[hasRecovery]
		for _, c := range []struct {
			args, answer, says string
			code               int
		}{
			{"info /", "", "APFS Physical Store:       disk0s2", 0},
			{"info disk0", "", "(100000000000 Bytes)", 0},
			{"apfs resizeContainer disk0s2 0", "", "Error: -69743", 1},
			{"repairDisk disk0", "", "canceled", 1},
			{"repairDisk disk0", "y\n", "Finished", 0},
			{"list disk0", "", "(free space)                         50.0 GB", 0},
			{"apfs resizeContainer disk0s2 0", "", "", map[bool]int{true: 1}[hasRecovery]},
			{"list disk0", "", free, 0},
			{"eraseDisk disk0", "", "did not recognize", 1},
		} {
			var out bytes.Buffer
			code := d.Diskutil(strings.Fields(c.args), strings.NewReader(c.answer), &out)
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("recovery %t: %s: code %d, %s\nwant %d, %s", hasRecovery, c.args, code, &out, c.code, c.says)
			}
		}
		if d.SystemBytes != grown {
			t.Errorf("recovery %t: the partitions have %d bytes, want %d", hasRecovery, d.SystemBytes, grown)
		}
	}
}
