package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
)

// openImageVolumes returns the file systems of all disks of an image, and records those that cannot be read.
func (i *Inventory) openImageVolumes(ctx context.Context, img *disk.Image, o Options) ([]volume, error) {
	for _, s := range img.Skipped() {
		i.Skipped = append(i.Skipped, Skipped{Name: s.Name, Reason: s.Reason, MayHavePackages: s.MayHavePackages})
	}
	disks, keys := img.Disks(), disk.NewKeys(o.Keys)
	if len(disks)+len(i.Skipped) == 1 {
		return i.openVolumes(ctx, namedDisk{Disk: disks[0]}, keys, o)
	}
	var out []volume
	for _, d := range disks {
		found, err := i.openVolumes(ctx, namedDisk{d, d.Name}, keys, o)
		if err != nil {
			i.Skipped = append(i.Skipped, Skipped{Name: d.Name, Reason: err.Error(), MayHavePackages: true})
			continue
		}
		out = append(out, found...)
	}
	return out, nil
}

// namedDisk is a disk, with a name that distinguishes it from others of the same source; "" when it is the only one.
type namedDisk struct {
	disk.Disk
	display string
}

// openVolumes returns the file systems of a disk to catalog, and records the others.
func (i *Inventory) openVolumes(ctx context.Context, d namedDisk, keys *disk.Keys, o Options) ([]volume, error) {
	found, skipped, err := disk.VolumesWithKeys(ctx, d, d.Size, keys)
	if err != nil {
		return nil, err
	}
	on := ""
	if d.display != "" {
		on = d.display + ": "
	}
	for _, s := range skipped {
		i.Skipped = append(i.Skipped,
			Skipped{Name: on +
				partitionName(s.Partition, s.Name), Reason: s.Reason, MayHavePackages: s.MayHavePackages})
	}
	var out []volume
	for _, v := range found {
		label := cmp.Or(v.Name, partitionName(v.Partition, ""))
		if v.Role == roleSystem && o.IgnoreSystem {
			i.Skipped = append(i.Skipped,
				Skipped{Name: on + label, Reason: "the system volume is left out, as was asked for"})
			continue
		}
		open := openerOf(v, o.Snapshot)
		files, err := open()
		if err != nil {
			i.Skipped = append(i.Skipped,
				Skipped{Name: on + label, Reason: err.Error(), MayHavePackages: !errors.Is(err, apfs.ErrNoSnapshot)})
			continue
		}
		out = append(out, volume{
			Volume: Volume{Name: label, Role: v.Role, Format: v.Format, Notes: v.Notes}, group: v.Group,
			bootRank: bootRank(v.Role, files), open: open, start: v.Start, length: v.Length, mapped: v.IsMapped,
		})
	}
	return out, nil
}

// openerOf returns what opens the files of a volume, or of its snapshot with a name.
func openerOf(v disk.Volume, snapshot string) func() (fs.FS, error) {
	switch {
	case snapshot == "":
		return v.Open
	case v.Snapshot == nil:
		return func() (fs.FS, error) { return nil, apfs.ErrNoSnapshot }
	}
	return func() (fs.FS, error) { return v.Snapshot(snapshot) }
}

// partitionName formats the name of a part of a disk, which may name its partition already.
func partitionName(index int, name string) string {
	switch {
	case strings.HasPrefix(name, fmt.Sprintf("partition %d ", index)):
		return name
	case index == 0 && name == "":
		return "the disk"
	case index == 0:
		return name
	case name == "":
		return fmt.Sprintf("partition %d", index)
	}
	return fmt.Sprintf("partition %d (%s)", index, name)
}
