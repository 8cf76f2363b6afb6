package cloud

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestStartSizes: the sizes of the flags reach the API in its form.
func TestStartSizes(t *testing.T) {
	for _, tc := range []struct {
		disk, memory string
		wantDisk     string // "": none
		wantMiB      int
	}{
		{"", "", "", 0},
		{"80G", "8192", "80G", 8192},
		{"10GB", "4G", "10G", 4096},
		{"10", "0", "10G", 0},
		{"1536MiB", "512mb", "1536M", 512},
		{"2048gb", "1048576KB", "2T", 1024},
		{"1024B", "2097152B", "1K", 2},
	} {
		var r client.StartRequest
		o := startOptions{diskSize: tc.disk, memory: tc.memory}
		if err := o.addSizes(&r); err != nil {
			t.Errorf("%q, %q: %v", tc.disk, tc.memory, err)
			continue
		}
		disk := ""
		if r.Disk != nil {
			disk = r.Disk.Size
		}
		if disk != tc.wantDisk || r.VRAM != tc.wantMiB {
			t.Errorf("%q, %q: disk %q, %d MiB", tc.disk, tc.memory, disk, r.VRAM)
		}
	}
	for _, tc := range []struct{ disk, memory, want string }{
		{"ten", "", `--disk: invalid size "ten"`},
		{"0", "", "more than 0"},
		{"1500B", "", "--disk: size \"1500B\" must be a multiple of 1 KiB"},
		{"-1G", "", "--disk: invalid size"},
		{"99999999999999999999G", "", "--disk: size limit"},
		{"", "much", `--vram: invalid size "much"`},
		{"", "1KB", "--vram: size \"1KB\" must be a multiple of 1 MiB"},
		{"", "-1", "--vram: invalid size"},
	} {
		var r client.StartRequest
		o := startOptions{diskSize: tc.disk, memory: tc.memory}
		err := o.addSizes(&r)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q, %q: %v, want %s", tc.disk, tc.memory, err, tc.want)
		}
	}
}
