package lvm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// LogicalVolume is a volume of a group.
type LogicalVolume struct {
	Name            string  // of the group and the volume, with a slash between them
	Device          *Device // its bytes; nil: it cannot be read
	Reason          string  // why it cannot be read
	MayHavePackages bool    // it may have packages, though it cannot be read
	Err             error   // where its metadata is damaged
}

// UnusedDevice is a physical volume of which no logical volume is returned.
type UnusedDevice struct {
	Device          *PhysicalVolume
	Reason          string
	MayHavePackages bool
	Err             error // where its metadata is damaged
}

// groupFinder assigns physical volumes to groups.
type groupFinder struct {
	devices map[string][]*PhysicalVolume // by identifier: more than one are copies of each other
	groups  []*metadata                  // the newest of each
	owners  map[string]*metadata         // identifier of a device -> its group; nil: several say to have it
}

// Volumes returns the logical volumes of all groups that some physical volumes have, and those of them that are in
// no group.
func Volumes(devices []*PhysicalVolume) (vols []LogicalVolume, unused []UnusedDevice) {
	f := groupFinder{devices: map[string][]*PhysicalVolume{}, owners: map[string]*metadata{}}
	for _, d := range devices {
		f.devices[d.id] = append(f.devices[d.id], d)
		f.addGroup(d.group)
	}
	f.assignOwners(devices)
	empty := map[*metadata]bool{}
	for _, m := range f.groups {
		found := f.groupVolumes(m)
		vols, empty[m] = append(vols, found...), len(found) == 0
	}
	for _, d := range devices {
		owner, claimed := f.owners[d.id]
		switch {
		case owner != nil && empty[owner]:
			reason := fmt.Sprintf("its volume group %s has no logical volumes", owner.name)
			unused = append(unused, UnusedDevice{Device: d, Reason: reason})
		case owner != nil:
		case claimed:
			unused = append(unused, unusedError(d, damaged("several volume groups have its physical volume")))
		case d.err != nil:
			unused = append(unused, unusedError(d, d.err))
		case d.group != nil:
			unused = append(unused, unusedError(d, damaged("its volume group does not have it")))
		case !d.hasText:
			unused = append(unused, UnusedDevice{
				Device: d, MayHavePackages: true,
				Reason: "it has no LVM metadata, and no other part of the disk has that of its volume group",
			})
		default:
			unused = append(unused, UnusedDevice{Device: d, Reason: "it is in no volume group of LVM"})
		}
	}
	return vols, unused
}

func unusedError(d *PhysicalVolume, err error) UnusedDevice {
	return UnusedDevice{Device: d, Reason: err.Error(), MayHavePackages: true, Err: err}
}

// addGroup keeps the newest metadata of each group.
func (f *groupFinder) addGroup(m *metadata) {
	if m == nil {
		return
	}
	at := slices.IndexFunc(f.groups, func(g *metadata) bool { return g.id == m.id && g.name == m.name })
	switch {
	case at < 0:
		f.groups = append(f.groups, m)
	case m.sequence > f.groups[at].sequence:
		f.groups[at] = m
	}
}

// assignOwners decides which group has a device: the one in the metadata of the device itself, else the only one
// that lists it.
func (f *groupFinder) assignOwners(devices []*PhysicalVolume) {
	own := map[string]string{} // identifier of a device -> that of the group in its own metadata
	for _, d := range devices {
		if d.group != nil {
			own[d.id] = d.group.id
		}
	}
	for _, m := range f.groups {
		for _, r := range m.devices {
			if id, ok := own[r.id]; len(f.devices[r.id]) == 0 || ok && id != m.id {
				continue
			}
			if other, ok := f.owners[r.id]; ok && other != m {
				f.owners[r.id] = nil
				continue
			}
			f.owners[r.id] = m
		}
	}
}

// groupVolumes returns the visible volumes of a group.
func (f *groupFinder) groupVolumes(m *metadata) (vols []LogicalVolume) {
	overlap := m.checkOverlap()
	for i := range m.volumes {
		r := &m.volumes[i]
		if r.isHidden {
			continue // a part of a visible volume
		}
		v := LogicalVolume{Name: m.name + "/" + r.name}
		switch {
		case overlap != nil:
			v.Err = overlap
		case r.unread != "":
			v.Reason, v.MayHavePackages = r.unread, !r.isPool
		default:
			v.Device, v.Err = f.open(m, r)
		}
		if v.Err != nil {
			v.Reason, v.MayHavePackages = v.Err.Error(), true
		}
		vols = append(vols, v)
	}
	return vols
}

// checkOverlap returns an error if two segments of a group have the same extent.
func (m *metadata) checkOverlap() error {
	type extents struct {
		device     string
		start, end int64
		volume     string
	}
	var all []extents
	for _, v := range m.volumes {
		for _, s := range v.segments {
			for _, p := range s.stripes {
				all = append(all, extents{p.device, p.extent, p.extent + s.count/int64(len(s.stripes)), v.name})
			}
		}
	}
	slices.SortFunc(all, func(a, b extents) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.start, b.start))
	})
	for k := 1; k < len(all); k++ {
		if a, b := all[k-1], all[k]; a.device == b.device && b.start < a.end {
			return damaged("the volumes %s and %s of group %s have the same extent %d of physical volume %s",
				a.volume, b.volume, m.name, b.start, b.device)
		}
	}
	return nil
}

// open returns the bytes of a volume.
func (f *groupFinder) open(m *metadata, v *volumeRecord) (*Device, error) {
	d := &Device{}
	for _, s := range v.segments {
		part := mapping{start: d.size, length: s.count * m.extentBytes, stripeBytes: s.stripeBytes}
		for _, p := range s.stripes {
			a, err := f.openStripe(m, p, s.count/int64(len(s.stripes)))
			if err != nil {
				return nil, err
			}
			part.areas = append(part.areas, a)
		}
		d.size += part.length
		d.mappings = append(d.mappings, part)
	}
	return d, nil
}

// openStripe returns where a stripe of some extents is.
func (f *groupFinder) openStripe(m *metadata, p stripeRecord, count int64) (area, error) {
	at, ok := m.deviceIndex[p.device]
	if !ok {
		return area{}, fmt.Errorf("it is on %q, which is not a physical volume of its group", p.device)
	}
	r := &m.devices[at]
	found := f.devices[r.id]
	switch {
	case len(found) == 0:
		return area{}, fmt.Errorf("its physical volume %s (%s, once %q) is not on this disk", r.name, r.id, r.hint)
	case len(found) > 1:
		return area{}, fmt.Errorf("%d parts of the disk say to be its physical volume %s (%s)", len(found), r.name,
			r.id)
	case f.owners[r.id] != m:
		return area{}, damaged("its physical volume %s (%s) is in another group", r.name, r.id)
	case r.isMissing:
		return area{}, fmt.Errorf("its physical volume %s (%s) was missing at the last change of the group: "+
			"its content may be old", r.name, r.id)
	}
	if r.start > found[0].size || p.extent+count > (found[0].size-r.start)/m.extentBytes {
		return area{}, damaged("it has extents from %d to %d of physical volume %s, past its end", p.extent,
			p.extent+count, r.name)
	}
	return area{found[0].r, r.start + p.extent*m.extentBytes}, nil
}

// area is where some bytes of a volume begin.
type area struct {
	r     io.ReaderAt
	start int64
}

// mapping is a segment of a volume, in bytes: linear, or in turns of stripeBytes on several areas.
type mapping struct {
	start, length int64
	areas         []area
	stripeBytes   int64
}

// Device has the bytes of a logical volume. It is safe for concurrent reads.
type Device struct {
	size     int64
	mappings []mapping // in their order, without gaps
}

var _ io.ReaderAt = (*Device)(nil)

// Size returns the size in bytes.
func (d *Device) Size() int64 { return d.size }

// ReadAt reads the volume.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	at, _ := slices.BinarySearchFunc(d.mappings, off+1, func(m mapping, end int64) int {
		return cmp.Compare(m.start+m.length, end)
	})
	for n < len(p) && at < len(d.mappings) {
		m := &d.mappings[at]
		a, run := m.locate(off - m.start)
		part := p[n:min(len(p), n+int(min(run, int64(len(p)))))]
		if err := readFullAt(a.r, part, a.start); err != nil {
			return n, err
		}
		n, off = n+len(part), off+int64(len(part))
		if off == m.start+m.length {
			at++
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// locate returns where a byte of the segment is, and how many bytes follow there.
func (m *mapping) locate(off int64) (area, int64) {
	if len(m.areas) == 1 {
		return area{m.areas[0].r, m.areas[0].start + off}, m.length - off
	}
	n := int64(len(m.areas))
	stripe, in := off/m.stripeBytes, off%m.stripeBytes
	a := m.areas[stripe%n]
	return area{a.r, a.start + stripe/n*m.stripeBytes + in}, m.stripeBytes - in
}
