package cloud

import (
	"strconv"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// addSizes adds the sizes of the flags to a request.
func (o *startOptions) addSizes(r *client.StartRequest) error {
	if o.diskSize != "" {
		size, err := diskSizeText(o.diskSize)
		if err != nil {
			return err
		}
		r.Disk = &client.Disk{Size: size}
	}
	if o.memory == "" {
		return nil
	}
	n, err := bytesize.Parse("--vram", o.memory, bytesize.MB)
	if err != nil {
		return err
	}
	if n%bytesize.MB != 0 {
		return farm.Invalid("--vram", "size %q must be a multiple of 1 MiB", o.memory)
	}
	r.VRAM = int(n / bytesize.MB)
	return nil
}

// apiDiskUnits are the units of a disk size in the API, from the largest.
var apiDiskUnits = []struct {
	suffix string
	bytes  int64
}{{"T", bytesize.TB}, {"G", bytesize.GB}, {"M", bytesize.MB}, {"K", bytesize.KB}}

// diskSizeText returns the size of --disk in the form of the API: a whole number with its unit.
func diskSizeText(text string) (string, error) {
	n, err := bytesize.Parse("--disk", text, bytesize.GB)
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", farm.Invalid("--disk", "size %q must be more than 0", text)
	}
	for _, unit := range apiDiskUnits {
		if n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.suffix, nil
		}
	}
	return "", farm.Invalid("--disk", "size %q must be a multiple of 1 KiB", text)
}
