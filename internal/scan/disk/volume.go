package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/btrfs"
	"github.com/buildyard/buildyard/internal/scan/fs/ext4"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus"
	"github.com/buildyard/buildyard/internal/scan/fs/xfs"
)

// Volume is a file system on a disk.
type Volume struct {
	Name      string   // its name, may be ""
	Partition int      // Index of the Partition; 0 also for a logical volume
	Start     int64    // offset of the partition on the disk in bytes
	Length    int64    // bytes of the partition
	IsMapped  bool     // its bytes are not those of the disk from Start on: it is encrypted, or a logical volume
	Format    string   // "ext4" (also for ext2 and ext3), "xfs", "btrfs", "apfs" or "hfsplus"
	Role      string   // of APFS: "system", "data", ...; "" = none
	Group     string   // of APFS: the volume group, which combines two volumes to one tree; "" = none
	Notes     []string // possible errors in what is read, in sentences

	// Open returns the files. Each call reads the file system again: what is cached is freed with the files.
	Open     func() (fs.FS, error)
	Snapshot func(name string) (fs.FS, error) // of APFS: the files of a snapshot; nil where there are none
}

// Skipped is a part of a disk that is not returned as a volume.
type Skipped struct {
	Partition       int    // Index of the Partition; 0 also for a logical volume
	Name            string // its name, as far as known
	Reason          string
	MayHavePackages bool  // it may have packages: without it a scan is incomplete
	Err             error // where reading it failed
}

// openFunc opens the volumes of a partition of a format.
type openFunc func(ctx context.Context, r io.ReaderAt, size int64, keys *keyring) ([]Volume, []Skipped, error)

// openers are the supported formats.
var openers = map[string]openFunc{
	formatExt4: openExt4, formatXFS: openXFS, formatBtrfs: openBtrfs, formatAPFS: openAPFS,
	formatHFS: openHFSPlus,
}

// skippedWithError returns a part that could not be read.
func skippedWithError(name string, err error) Skipped {
	return Skipped{Name: name, Reason: err.Error(), MayHavePackages: true, Err: err}
}

// displayName formats the name of a partition for users.
func (p Partition) displayName(what string) string {
	switch {
	case p.Index == 0:
		return what
	case p.Name == "":
		return fmt.Sprintf("partition %d (%s)", p.Index, what)
	}
	return fmt.Sprintf("partition %d %q (%s)", p.Index, p.Name, what)
}

func openExt4(_ context.Context, r io.ReaderAt, size int64, _ *keyring) ([]Volume, []Skipped, error) {
	f, err := ext4.Open(r, size)
	if err != nil {
		if errors.Is(err, ext4.ErrNotExt) {
			err = damaged("%v", err)
		}
		return nil, nil, err
	}
	name := f.Label()
	if name == "" {
		name = f.LastMounted()
	}
	return []Volume{{
		Name: name, Format: formatExt4, Notes: f.Notes(), Open: func() (fs.FS, error) { return ext4.Open(r, size) },
	}}, nil, nil
}

func openXFS(_ context.Context, r io.ReaderAt, size int64, _ *keyring) ([]Volume, []Skipped, error) {
	f, err := xfs.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	return []Volume{{
		Name: f.Label(), Format: formatXFS, Notes: f.Notes(), Open: func() (fs.FS, error) { return xfs.Open(r, size) },
	}}, nil, nil
}

// openBtrfs returns the tree of the default subvolume, and where that is not the top level the rest as another volume.
func openBtrfs(_ context.Context, r io.ReaderAt, size int64, _ *keyring) ([]Volume, []Skipped, error) {
	f, err := btrfs.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	vols := []Volume{{
		Name: f.Label(), Format: formatBtrfs, Notes: f.Notes(),
		Open: func() (fs.FS, error) { return btrfs.Open(r, size) },
	}}
	rest, err := f.Rest()
	if err == nil && rest != nil {
		vols = append(vols, Volume{
			Name: nameOfRest, Format: formatBtrfs, Open: func() (fs.FS, error) { return openRest(r, size) },
		})
	}
	return vols, nil, err
}

// openRest opens what is outside the default subvolume of Btrfs.
func openRest(r io.ReaderAt, size int64) (fs.FS, error) {
	f, err := btrfs.Open(r, size)
	if err != nil {
		return nil, err
	}
	rest, err := f.Rest()
	if err == nil && rest == nil {
		err = errors.New("its default subvolume was changed while it was read")
	}
	return rest, err
}

func openHFSPlus(_ context.Context, r io.ReaderAt, size int64, _ *keyring) ([]Volume, []Skipped, error) {
	f, err := hfsplus.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	return []Volume{{
		Name: f.Label(), Format: formatHFS, Notes: f.Notes(),
		Open: func() (fs.FS, error) { return hfsplus.Open(r, size) },
	}}, nil, nil
}

// nameOfRest is the name of what is outside the default subvolume of Btrfs.
const nameOfRest = "top level"
