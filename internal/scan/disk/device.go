package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/disk/luks"
	"github.com/buildyard/buildyard/internal/scan/disk/lvm"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
	"github.com/buildyard/buildyard/internal/scan/fs/btrfs"
	"github.com/buildyard/buildyard/internal/scan/fs/xfs"
)

// Limits of devices in partitions.
const (
	maxDeviceDepth    = 4    // encrypted parts and logical volumes within each other
	maxLogicalVolumes = 1024 // of a disk
	maxUnlocks        = 16   // encrypted parts of a disk for which keys are tried
)

const (
	reasonNoKey  = "it is encrypted: give its password, recovery key or key file with --key-file"
	reasonNested = "it is within too many encrypted parts and logical volumes"
)

// Volumes finds the file systems of a disk. It fails only where the disk as a whole is unreadable,
// and with ErrNotDisk for another file; r must stay open while the volumes are used. Encrypted parts are skipped.
func Volumes(r io.ReaderAt, size int64) (vols []Volume, skipped []Skipped, err error) {
	return VolumesWithKeys(context.Background(), r, size, nil)
}

// VolumesWithKeys is Volumes with keys for parts that are encrypted with LUKS, and for encrypted APFS volumes; nil is
// none. Once ctx has ended, it opens no other part, and returns the cause.
func VolumesWithKeys(
	ctx context.Context, r io.ReaderAt, size int64, keys *Keys,
) (vols []Volume, skipped []Skipped, err error) {
	parts, err := Partitions(r, size)
	if err != nil {
		return nil, nil, err
	}
	f := volumeFinder{keys: keyring{keys: keys}}
	for _, p := range parts {
		v, s := len(f.vols), len(f.skipped)
		f.find(ctx, device{r: io.NewSectionReader(r, p.Start, p.Length), part: p})
		for i := range f.vols[v:] {
			f.vols[v+i].Start, f.vols[v+i].Length = p.Start, p.Length
		}
		if found := f.skipped[s:]; p.Index == 0 && len(found) == 1 &&
			(size == 0 || found[0].Name == formatUnknown || found[0].Name == formatCD) {
			return nil, nil, notDiskError(r, size)
		}
	}
	for len(f.physical) > 0 {
		f.findLogical(ctx)
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	return f.vols, f.skipped, nil
}

// device is a partition, a logical volume, or what is encrypted in one of them.
type device struct {
	r      io.ReaderAt
	part   Partition // of a logical volume only its Length is set
	volume string    // the name of a logical volume; "" = it is in a partition
	isLUKS bool      // it was encrypted with LUKS
	depth  int       // encrypted parts and logical volumes that it is in
}

// displayName formats the name of a device for users.
func (d device) displayName(what string) string {
	if d.isLUKS {
		what += " in LUKS"
	}
	if d.volume != "" {
		return fmt.Sprintf("logical volume %s (%s)", d.volume, what)
	}
	return d.part.displayName(what)
}

// volumeFinder finds the volumes of a disk.
type volumeFinder struct {
	keys    keyring
	vols    []Volume
	skipped []Skipped

	physical []physicalVolume // whose logical volumes were not looked at
	logical  int              // number of logical volumes
}

// Keys are the keys for the encrypted parts of all disks of a source, and the limit of the work of trying them. They
// are not safe for concurrent use. A source that is opened again has new ones: it takes the same work again.
type Keys struct {
	list [][]byte
	luks *luks.Budget
	apfs *keybag.Budget
}

// NewKeys returns passphrases, recovery keys, or the contents of key files, which are tried in this order.
func NewKeys(list [][]byte) *Keys {
	return &Keys{list: list, luks: luks.NewBudget(), apfs: keybag.NewBudget()}
}

// keyring has the keys for the encrypted parts of a disk.
type keyring struct {
	keys    *Keys // nil: none
	unlocks int   // parts for which keys were tried
}

// take returns the keys for another part; nil if none were given.
func (k *keyring) take() (*Keys, error) {
	if k.keys == nil || len(k.keys.list) == 0 {
		return nil, nil
	}
	if k.unlocks == maxUnlocks {
		return nil, fmt.Errorf("the disk has more than %d encrypted parts", maxUnlocks)
	}
	k.unlocks++
	return k.keys, nil
}

// unlockError describes why a part was not unlocked.
func unlockError(err error) error {
	if errors.Is(err, luks.ErrWrongKey) || errors.Is(err, keybag.ErrWrongKey) {
		err = fmt.Errorf("%w: check the file of --key-file", err)
	}
	return fmt.Errorf("%s: %w", reasonEncrypted, err)
}

// withAdvice adds to the error of a form that is not read what to do.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, luks.ErrUnsupported):
		return fmt.Errorf("%w: open it with cryptsetup, and scan vm_image:/dev/mapper/NAME", err)
	case errors.Is(err, xfs.ErrUnsupported), errors.Is(err, btrfs.ErrUnsupported):
		return fmt.Errorf("%w: mount it, and scan dir:DIRECTORY", err)
	}
	return err
}

// physicalVolume is a physical volume of LVM, and the device that it is on.
type physicalVolume struct {
	*lvm.PhysicalVolume
	device device
}

// skip adds a part that is not read.
func (f *volumeFinder) skip(d device, s Skipped) {
	s.Partition = d.part.Index
	f.skipped = append(f.skipped, s)
}

// fail adds a part that could not be read.
func (f *volumeFinder) fail(d device, what string, err error) {
	f.skip(d, skippedWithError(d.displayName(what), err))
}

// find adds the volumes of a device.
func (f *volumeFinder) find(ctx context.Context, d device) {
	p := d.part
	switch {
	case ctx.Err() != nil:
		return
	case p.Err != nil:
		f.fail(d, "the extended partition", p.Err)
		return
	case p.Length == 0:
		f.skip(d, Skipped{
			Name: d.displayName("a partition"), Reason: "it is past the end of the disk", MayHavePackages: true,
		})
		return
	}
	if d.isLUKS {
		p.Type = "" // that of the encrypted part
	}
	k, err := detectKind(d.r, p)
	switch {
	case err != nil:
		f.fail(d, "a partition", err)
	case (k.name == formatLUKS || k.name == formatLVM) && d.depth == maxDeviceDepth:
		f.skip(d, Skipped{Name: d.displayName(k.name), Reason: reasonNested, MayHavePackages: true})
	case k.name == formatLUKS:
		f.findEncrypted(ctx, d)
	case k.name == formatLVM:
		v, err := lvm.Open(d.r, p.Length)
		if err != nil {
			f.fail(d, formatLVM, err)
			return
		}
		f.physical = append(f.physical, physicalVolume{v, d})
	default:
		f.open(ctx, d, k)
	}
}

// open opens the file systems of a device.
func (f *volumeFinder) open(ctx context.Context, d device, k contentKind) {
	open := openers[k.name]
	if open == nil {
		s := Skipped{Name: d.displayName(k.name), Reason: k.reason, MayHavePackages: k.mayHavePackages}
		if s.Reason == "" {
			s.Reason, s.MayHavePackages = reasonUnsupported, true
		}
		f.skip(d, s)
		return
	}
	vols, skipped, err := open(ctx, d.r, d.part.Length, &f.keys)
	if err != nil {
		skipped = append(skipped, skippedWithError(d.displayName(k.name), withAdvice(err)))
	}
	for _, v := range vols {
		v.Name, v.Partition = cmp.Or(v.Name, d.volume), d.part.Index
		v.Length, v.IsMapped = d.part.Length, d.depth > 0
		f.vols = append(f.vols, v)
	}
	for _, s := range skipped {
		f.skip(d, s)
	}
}

// findEncrypted adds the volumes of a device that is encrypted with LUKS.
func (f *volumeFinder) findEncrypted(ctx context.Context, d device) {
	c, err := luks.Open(d.r, d.part.Length)
	if err != nil {
		f.skip(d, Skipped{
			Name: d.displayName(formatLUKS), Reason: reasonEncrypted + ": " + withAdvice(err).Error(),
			MayHavePackages: true, Err: err,
		})
		return
	}
	keys, err := f.keys.take()
	switch {
	case err != nil:
		f.fail(d, formatLUKS, err)
		return
	case keys == nil:
		f.skip(d, Skipped{Name: d.displayName(formatLUKS), Reason: reasonNoKey, MayHavePackages: true})
		return
	}
	plain, err := c.Unlock(ctx, keys.list, keys.luks)
	if err != nil {
		f.fail(d, formatLUKS, unlockError(err))
		return
	}
	d.r, d.part.Length, d.isLUKS, d.depth = plain, plain.Size(), true, d.depth+1
	f.find(ctx, d)
}

// findLogical adds what is in the logical volumes of the physical volumes found so far.
func (f *volumeFinder) findLogical(ctx context.Context) {
	devices := map[*lvm.PhysicalVolume]device{}
	list, depth := make([]*lvm.PhysicalVolume, len(f.physical)), 0
	for i, v := range f.physical {
		list[i], devices[v.PhysicalVolume], depth = v.PhysicalVolume, v.device, max(depth, v.device.depth+1)
	}
	f.physical = nil
	vols, unused := lvm.Volumes(list)
	for _, u := range unused {
		d := devices[u.Device]
		f.skip(d, Skipped{
			Name: d.displayName(formatLVM), Reason: u.Reason, MayHavePackages: u.MayHavePackages, Err: u.Err,
		})
	}
	for _, v := range vols {
		if f.logical++; f.logical > maxLogicalVolumes {
			f.skipped = append(f.skipped, Skipped{
				Name: "logical volumes", Reason: fmt.Sprintf("there are more than %d", maxLogicalVolumes),
				MayHavePackages: true,
			})
			return
		}
		if v.Device == nil {
			f.skipped = append(f.skipped, Skipped{
				Name: "logical volume " + v.Name, Reason: v.Reason, MayHavePackages: v.MayHavePackages, Err: v.Err,
			})
			continue
		}
		f.find(ctx, device{
			r: v.Device, part: Partition{Length: v.Device.Size()}, volume: v.Name, depth: depth,
		})
	}
}
