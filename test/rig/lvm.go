package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

const (
	lvmStart  = 1 << 20 // of the first partition
	lvmExtent = 1 << 20
	lvmSpare  = 8 << 20 // of each physical volume, for metadata
)

// lvmDisk is a disk with two partitions, which are the physical volumes of a group.
type lvmDisk struct {
	name    string
	part    int64    // length of a partition in bytes
	devices []string // loop devices of the partitions
}

// MakeLVM writes a disk with the content of an image in a logical volume that begins on the second of two partitions
// and ends on the first. The tools of LVM say where its extents are; the kernel's device mapper is not needed, root is.
func MakeLVM(ctx context.Context, image, to string) (err error) {
	st, err := os.Stat(image)
	if err != nil {
		return err
	}
	half := (st.Size()/2/lvmExtent + 1) * lvmExtent
	d := lvmDisk{name: to, part: half + lvmSpare}
	if err := d.partition(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.detach(context.WithoutCancel(ctx))) }()
	ranges, err := d.format(ctx, half/lvmExtent)
	if err != nil {
		return fmt.Errorf("no LVM can be made: %w; install lvm2", err)
	}
	return d.fill(image, ranges)
}

func (d *lvmDisk) partition() error {
	f, err := os.Create(d.name)
	if err != nil {
		return err
	}
	size := 2*d.part + 2*lvmStart
	err = f.Truncate(size)
	if err == nil {
		err = disktest.WriteGPT(f, size, 512,
			disktest.Part{Type: disktest.Linux, Name: "one", Start: lvmStart, Length: d.part},
			disktest.Part{Type: disktest.Linux, Name: "two", Start: lvmStart + d.part, Length: d.part})
	}
	return errors.Join(err, f.Close())
}

// format makes the group and its volume, and returns the extents of the volume as lvs lists them.
func (d *lvmDisk) format(ctx context.Context, half int64) (string, error) {
	for k := range int64(2) {
		out, err := Output(ctx, "", "losetup", "-f", "--show", "-o", strconv.FormatInt(lvmStart+k*d.part, 10),
			"--sizelimit", strconv.FormatInt(d.part, 10), d.name)
		if err != nil {
			return "", err
		}
		d.devices = append(d.devices, strings.TrimSpace(out))
	}
	one, two, extents := d.devices[0], d.devices[1], strconv.FormatInt(half, 10)
	for _, args := range [][]string{
		{"pvcreate", "-y", one, two},
		{"vgcreate", "-y", "-s", strconv.Itoa(lvmExtent) + "b", "group", one, two},
		{"lvcreate", "-y", "-an", "-Zn", "-Wn", "-n", "root", "-l", extents, "group", two},
		{"lvextend", "-y", "-l", "+" + extents, "group/root", one},
	} {
		if _, err := d.lvm(ctx, args...); err != nil {
			return "", err
		}
	}
	return d.lvm(ctx, "lvs", "--segments", "--noheadings", "-o", "seg_pe_ranges", "-O", "seg_start_pe", "group")
}

// lvm runs a command that sees the devices of the disk alone.
func (d *lvmDisk) lvm(ctx context.Context, args ...string) (string, error) {
	var filter strings.Builder
	for _, name := range d.devices {
		fmt.Fprintf(&filter, `"a|^%s$|",`, name)
	}
	config := `devices{use_devicesfile=0 filter=[` + filter.String() + `"r|.*|"]} global{event_activation=0 use_lvmpolld=0 ` +
		`locking_dir="` + filepath.Dir(d.name) + `"} activation{udev_sync=0 udev_rules=0 monitoring=0} ` +
		`backup{backup=0 archive=0}`
	// Its errors about a kernel without a device mapper are not of interest, only its exit code is.
	return Output(ctx, "", "lvm", append([]string{args[0], "--driverloaded", "n", "--config", config}, args[1:]...)...)
}

// fill writes an image to the extents of the volume: lines of DEVICE:FIRST-LAST.
func (d *lvmDisk) fill(image, ranges string) error {
	from, err := os.Open(image)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(d.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for line := range strings.FieldsSeq(ranges) {
		var first, last int64
		name, list, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(list, "%d-%d", &first, &last); err != nil {
			return errors.Join(fmt.Errorf("extents %q: %w", line, err), to.Close())
		}
		start := int64(lvmStart)
		if name == d.devices[1] {
			start += d.part
		}
		const firstExtent = 1 << 20 // pe_start of pvs, by default
		out := io.NewOffsetWriter(to, start+firstExtent+first*lvmExtent)
		if _, err := io.Copy(out, io.LimitReader(from, (last-first+1)*lvmExtent)); err != nil {
			return errors.Join(err, to.Close())
		}
	}
	return to.Close()
}

func (d *lvmDisk) detach(ctx context.Context) (err error) {
	for _, name := range d.devices {
		_, e := Output(ctx, "", "losetup", "-d", name)
		err = errors.Join(err, e)
	}
	return err
}
