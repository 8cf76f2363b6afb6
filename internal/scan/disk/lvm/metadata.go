package lvm

import (
	"fmt"
	"math"
	"strings"
)

// metadata describes a volume group.
type metadata struct {
	name, id    string
	sequence    int64 // of the change that it is from
	extentBytes int64
	devices     []deviceRecord
	deviceIndex map[string]int // name -> index in devices
	volumes     []volumeRecord
}

// deviceRecord describes a physical volume of a group.
type deviceRecord struct {
	name, id  string
	hint      string // the path that it once had
	start     int64  // of its first extent, in bytes
	isMissing bool   // it was missing at the last change, so that its content may be old
}

// volumeRecord describes a logical volume.
type volumeRecord struct {
	name     string
	isHidden bool // it is a part of another volume
	segments []segmentRecord
	unread   string // why it is not read; "" = it is
	isPool   bool   // it has the blocks of other volumes, and no file system
}

// segmentRecord describes a part of a logical volume, in extents.
type segmentRecord struct {
	start, count int64
	stripes      []stripeRecord
	stripeBytes  int64 // of more than one stripe
}

// stripeRecord is where a stripe begins.
type stripeRecord struct {
	device string // name of a physical volume, or of another logical volume
	extent int64
}

const (
	maxExtentSectors = 1 << 31
	maxStripes       = 128
	typeStriped      = "striped" // also of linear segments, which have one stripe
	typeLinear       = "linear"
	typeSnapshot     = "snapshot"
)

// adviceActivate is what to do with a volume that is not read.
const adviceActivate = "activate it, and scan vm_image:/dev/GROUP/VOLUME"

// poolTypes are the types of segments of pools.
var poolTypes = map[string]bool{"thin-pool": true, "cache-pool": true, "vdo-pool": true}

// parseMetadata parses the metadata of a volume group.
func parseMetadata(text []byte) (*metadata, error) {
	root, err := parseText(text)
	if err != nil {
		return nil, err
	}
	if _, err := root.number("version", 1, 1); err != nil {
		return nil, err
	}
	if len(root.names) != 1 {
		return nil, damaged("its LVM metadata has %d volume groups", len(root.names))
	}
	group := root.sections[root.names[0]]
	m := &metadata{name: root.names[0], id: group.text("id"), deviceIndex: map[string]int{}}
	if m.sequence, err = group.number("seqno", 0, math.MaxInt64); err != nil {
		return nil, err
	}
	sectors, err := group.number("extent_size", 1, maxExtentSectors)
	if err != nil {
		return nil, err
	}
	m.extentBytes = sectors * sectorBytes
	names, all := group.children("physical_volumes")
	for _, name := range names {
		d := deviceRecord{name: name, id: all[name].text("id"), hint: all[name].text("device")}
		d.isMissing = all[name].has("status", "MISSING") || all[name].has("flags", "MISSING")
		start, err := all[name].number("pe_start", 0, math.MaxInt64/sectorBytes)
		if err != nil {
			return nil, err
		}
		d.start = start * sectorBytes
		m.deviceIndex[name] = len(m.devices)
		m.devices = append(m.devices, d)
	}
	return m, m.parseVolumes(group)
}

func (m *metadata) parseVolumes(group *textSection) error {
	names, all := group.children("logical_volumes")
	snapshots := map[string]string{} // volume -> why it is not read
	for _, name := range names {
		v := volumeRecord{name: name, isHidden: !all[name].has("status", "VISIBLE")}
		if err := v.parseSegments(all[name], m.extentBytes, snapshots); err != nil {
			return err
		}
		m.volumes = append(m.volumes, v)
	}
	for k := range m.volumes {
		if v := &m.volumes[k]; snapshots[v.name] != "" {
			v.unread, v.isHidden = snapshots[v.name], false // users see snapshots
		}
	}
	return nil
}

// parseSegments parses the segments of a volume up to one that cannot be read. It adds to snapshots what their
// segments say about other volumes.
func (v *volumeRecord) parseSegments(s *textSection, extentBytes int64, snapshots map[string]string) error {
	n, err := s.number("segment_count", 0, maxTextEntries)
	if err != nil {
		return err
	}
	if n == 0 {
		v.unread = "it has no segments"
	}
	next := int64(0)
	for k := int64(1); k <= n; k++ {
		segment := s.sections[fmt.Sprintf("segment%d", k)]
		if segment == nil {
			return damaged("its LVM metadata has no segment %d of volume %s", k, v.name)
		}
		kind := segment.text("type")
		if kind == typeSnapshot {
			snapshots[segment.text("cow_store")] = unreadType(typeSnapshot)
			if store := segment.text("merging_store"); store != "" {
				snapshots[store] = unreadType(typeSnapshot)
				snapshots[segment.text("origin")] = "a snapshot is being merged into it"
			}
		}
		if kind != typeStriped && kind != typeLinear {
			v.unread, v.isPool = unreadType(kind), poolTypes[kind]
			return nil
		}
		r, err := parseSegment(segment, extentBytes)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.name, err)
		}
		if r.start != next {
			return damaged("segment %d of volume %s begins at extent %d instead of %d", k, v.name, r.start, next)
		}
		if next += r.count; next > math.MaxInt64/2/extentBytes {
			return damaged("volume %s has %d extents", v.name, next)
		}
		v.segments = append(v.segments, r)
	}
	return nil
}

// unreadType returns the reason for a type of segments.
func unreadType(kind string) string {
	kind = strings.Map(func(r rune) rune {
		if r < 0x80 && isNameByte(byte(r)) {
			return r
		}
		return -1
	}, kind)
	reason := fmt.Sprintf("logical volumes of the type %q cannot be read here", kind[:min(len(kind), 64)])
	if !poolTypes[kind] {
		reason += ": " + adviceActivate
	}
	return reason
}

// parseSegment parses a linear or striped segment.
func parseSegment(s *textSection, extentBytes int64) (r segmentRecord, err error) {
	limit := math.MaxInt64 / 2 / extentBytes
	if r.start, err = s.number("start_extent", 0, limit); err != nil {
		return r, err
	}
	if r.count, err = s.number("extent_count", 1, limit); err != nil {
		return r, err
	}
	n, err := s.number("stripe_count", 1, maxStripes)
	if err != nil {
		return r, err
	}
	list := s.values["stripes"]
	if int64(len(list)) != 2*n || r.count%n != 0 {
		return r, damaged("a segment of %d extents and %d stripes has %d values", r.count, n, len(list))
	}
	for ; len(list) > 0; list = list[2:] {
		if list[0].isNumber || !list[1].isNumber || list[1].number < 0 || list[1].number > limit {
			return r, damaged("its LVM metadata has a stripe without volume and extent")
		}
		r.stripes = append(r.stripes, stripeRecord{list[0].text, list[1].number})
	}
	if n == 1 {
		return r, nil
	}
	sectors, err := s.number("stripe_size", 1, extentBytes/sectorBytes)
	if r.stripeBytes = sectors * sectorBytes; err == nil && extentBytes%r.stripeBytes != 0 {
		err = damaged("its LVM metadata has stripes of %d bytes in extents of %d", r.stripeBytes, extentBytes)
	}
	return r, err
}
