package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/bytesize"
)

// findDiskSpace compares the free space with the reserve of the node.
func findDiskSpace(_ context.Context, o Options) finding {
	dir := o.Dir
	for dir != filepath.Dir(dir) { // a node that has not joined has no directory
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, total, err := host.DiskSpace(dir)
	if err != nil {
		return finding{outcome: Unknown, detail: err.Error()}
	}
	return evaluateDiskSpace(free, o.Reserve.Of(total), o)
}

func evaluateDiskSpace(free, reserve int64, o Options) finding {
	text := fmt.Sprintf("%s free at %s, the node keeps %s free", bytesize.Format(free), o.Dir, bytesize.Format(reserve))
	if free >= reserve {
		return finding{outcome: OK, detail: text}
	}
	f := finding{outcome: Problem, detail: text}
	if o.OS == "darwin" {
		f.remedy = "delete local snapshots (tmutil deletelocalsnapshots /) and files, or lower the reserve: " +
			"buildnode join URL --reserve-space SIZE"
	}
	return f
}
