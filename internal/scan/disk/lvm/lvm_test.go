package lvm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

const (
	areaStart = 4096 // of the metadata in testdata
	areaSize  = 61440
)

func pair(t testing.TB) (first, second []byte) {
	t.Helper()
	return treetest.Unpacked(t, "testdata/pv1.zst"), treetest.Unpacked(t, "testdata/pv2.zst")
}

// volumes formats what is on some physical volumes.
func volumes(t testing.TB, devices ...[]byte) []string {
	t.Helper()
	list := make([]*PhysicalVolume, len(devices))
	for i, b := range devices {
		v, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		list[i] = v
	}
	vols, unused := Volumes(list)
	var out []string
	for _, v := range vols {
		if v.Device == nil {
			out = append(out, fmt.Sprintf("%s: %s, %v", v.Name, v.Reason, v.MayHavePackages))
			continue
		}
		b, err := io.ReadAll(io.NewSectionReader(v.Device, 0, v.Device.Size()))
		out = append(out, fmt.Sprintf("%s: %d bytes %.4x %v", v.Name, len(b), sha256.Sum256(b), err))
	}
	for _, u := range unused {
		out = append(out, fmt.Sprintf("device %d: %s, %v", slices.Index(list, u.Device), u.Reason, u.MayHavePackages))
	}
	slices.Sort(out)
	return out
}

// The sums are those of the files that were written to the extents that lvs lists.
var (
	wantRoot    = "vg0/root: 1048576 bytes c6ff33ff <nil>"
	wantStriped = "vg0/striped: 393216 bytes d4e97763 <nil>"
	wantOrigin  = "vg0/origin: 65536 bytes 5b3bf59a <nil>"
)

func unread(name, kind string, partial bool) string {
	advice := ""
	if partial {
		advice = ": " + adviceActivate
	}
	return fmt.Sprintf("vg0/%s: logical volumes of the type %q cannot be read here%s, %v", name, kind, advice, partial)
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestVolumes(t *testing.T) {
	one, two := pair(t)
	want := []string{
		unread("mirrored", "raid1", true), wantOrigin, unread("pool", "thin-pool", false), wantRoot,
		unread("snap", "snapshot", true), wantStriped, "vg0/swap: 65536 bytes " + swapSum(one) + " <nil>",
		unread("thin", "thin", true),
	}
	equal(t, volumes(t, one, two), want...)
	equal(t, volumes(t, two, one), want...)
}

// swapSum returns the sum of extent 9 of the first physical volume.
func swapSum(one []byte) string {
	return fmt.Sprintf("%.4x", sha256.Sum256(one[65536+9*65536:65536+10*65536]))
}

func TestMissing(t *testing.T) {
	one, two := pair(t)
	got := volumes(t, one)
	for _, name := range []string{"root", "striped"} {
		if !slices.ContainsFunc(got, func(s string) bool {
			return strings.HasPrefix(s, "vg0/"+name+": its physical volume pv1 (") &&
				strings.HasSuffix(s, `, once "/dev/loop1") is not on this disk, true`)
		}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !slices.Contains(got, wantOrigin) {
		t.Errorf("%q", got)
	}
	equal(t, volumes(t, two),
		"device 0: it has no LVM metadata, and no other part of the disk has that of its volume group, true")
	got = volumes(t, one, two, two)
	if !slices.ContainsFunc(got, func(s string) bool {
		return strings.HasPrefix(s, "vg0/root: 2 parts of the disk say to be its physical volume pv1 (")
	}) {
		t.Errorf("%q", got)
	}
	cut := two[:65536+7*65536]
	got = volumes(t, one, cut)
	if !slices.ContainsFunc(got, func(s string) bool {
		return strings.HasPrefix(s, "vg0/root: the disk is damaged: it has extents from 5 to 10 of physical volume pv1")
	}) {
		t.Errorf("%q", got)
	}
}

// text returns the metadata of the first physical volume.
func text(b []byte) string {
	area := b[areaStart : areaStart+areaSize]
	le := binary.LittleEndian
	off, size := le.Uint64(area[40:]), le.Uint64(area[48:])
	first := min(size, areaSize-off)
	return string(area[off:off+first]) + string(area[areaHeadBytes:areaHeadBytes+size-first])
}

// withText returns a physical volume with other metadata and intact checksums.
func withText(b []byte, text string) []byte {
	b = bytes.Clone(b)
	area, le := b[areaStart:areaStart+areaSize], binary.LittleEndian
	copy(area[areaHeadBytes:], text)
	le.PutUint64(area[40:], areaHeadBytes)
	le.PutUint64(area[48:], uint64(len(text)))
	le.PutUint32(area[56:], checksum([]byte(text)))
	le.PutUint32(area, checksum(area[4:areaHeadBytes]))
	return b
}

func TestTextIsThatOfTheTools(t *testing.T) {
	one, _ := pair(t)
	s := text(one)
	if !strings.HasPrefix(s, "vg0 {\n") || !strings.Contains(s, "contents = \"Text Format Volume Group\"") {
		t.Fatalf("%q", s)
	}
}

func TestContradictions(t *testing.T) {
	one, two := pair(t)
	for _, c := range []struct{ from, to, want string }{
		{`"pv1", 5` + "\n", `"pv1", 4` + "\n", "have the same extent 4 of physical volume pv1"},
		{`"pv1", 5` + "\n", `"pv1", 4000` + "\n", "extents from 4000 to 4005 of physical volume pv1, past its end"},
		{`"pv1", 5` + "\n", `"pv1", -1` + "\n", "a stripe without volume and extent"},
		{`"pv1", 5` + "\n", `"pv7", 5` + "\n", `it is on "pv7", which is not a physical volume of its group`},
		{"start_extent = 5\n", "start_extent = 6\n", "segment 2 of volume root begins at extent 6 instead of 5"},
		{"segment_count = 3\n", "segment_count = 4\n", "no segment 4 of volume root"},
		{"segment_count = 3\n", "segment_count = 0\n", "vg0/root: it has no segments, true"},
		{"extent_size = 128\n", "extent_size = 0\n", "extent_size = 0"},
		{"extent_size = 128\n", "extent_size = 2147483648\n", "past its end"},
		{"stripe_size = 8\n", "stripe_size = 7\n", "stripes of 3584 bytes"},
		{"stripe_count = 2\n", "stripe_count = 3\n", "3 stripes has 4 values"},
		{"pe_start = 128\n", "pe_start = 9223372036854775807\n", "pe_start = 9223372036854775807"},
		{"seqno = ", "seqn = ", "no number seqno"},
		{"version = 1\n", "version = 2\n", "version = 2"},
		{`type = "raid1"`, `type = "\"\n\\x"`, `logical volumes of the type "nx" cannot be read here`},
		{`flags = []`, `flags = ["MISSING"]`, "was missing at the last change"},
		{"vg0 {", "{", "line 1 of its LVM metadata: want a name"},
		{"vg0 {", "vg0 {\na = 1\na = 2\n", "line 3 of its LVM metadata: there are two entries with the name a"},
		{"vg0 {", "vg1 { }\nvg0 {", "2 volume groups"},
		{"vg0 {", strings.Repeat("a {", 20) + "vg0 {", "nested too deep"},
		{"id = ", "id = x ", "want a string in quotation marks or a number"},
	} {
		t.Run(c.to, func(t *testing.T) {
			s := text(one)
			if !strings.Contains(s, c.from) && !strings.Contains(strings.ReplaceAll(s, "\n]", "]"), c.from) {
				t.Fatalf("%q is not in %s", c.from, s)
			}
			got := volumes(t, withText(one, strings.ReplaceAll(s, c.from, c.to)), two)
			if !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("got\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func TestDamagedAreas(t *testing.T) {
	one, _ := pair(t)
	le := binary.LittleEndian
	for _, c := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"text", func(b []byte) { b[areaStart+60000]++ }, "metadata is not what its checksum says"},
		{"header", func(b []byte) { b[areaStart+41]++ }, "the header of a metadata area is not what its checksum says"},
		{"position", func(b []byte) {
			le.PutUint64(b[areaStart+40:], areaSize)
			le.PutUint32(b[areaStart:], checksum(b[areaStart+4:areaStart+areaHeadBytes]))
		}, "is not within its area"},
		{"size", func(b []byte) {
			le.PutUint64(b[areaStart+48:], 1<<63)
			le.PutUint32(b[areaStart:], checksum(b[areaStart+4:areaStart+areaHeadBytes]))
		}, "is not within its area"},
		{"area", func(b []byte) {
			i := bytes.Index(b[512:1024], []byte{0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xf0})
			le.PutUint64(b[512+i:], 1<<63)
			le.PutUint32(b[512+16:], checksum(b[512+20:1024]))
		}, "is not on the device"},
	} {
		b := bytes.Clone(one)
		c.change(b)
		if got := strings.Join(volumes(t, b), "\n"); !strings.Contains(got, c.want) || !strings.Contains(got, "true") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	b := bytes.Clone(one)
	b[512+40]++
	if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, chunked.ErrDamaged) || IsPhysicalVolume(b) {
		t.Errorf("label: %v", err)
	}
	if !IsPhysicalVolume(one[:LabelBytes]) {
		t.Error("the label is not found")
	}
}

func TestReadAt(t *testing.T) {
	one, two := pair(t)
	list := make([]*PhysicalVolume, 2)
	for i, b := range [][]byte{one, two} {
		list[i], _ = Open(bytes.NewReader(b), int64(len(b)))
	}
	vols, _ := Volumes(list)
	for _, v := range vols {
		if v.Device == nil {
			continue
		}
		all, err := io.ReadAll(io.NewSectionReader(v.Device, 0, v.Device.Size()))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 1, 4095, 4096, 65535, 5*65536 - 1} {
			for _, n := range []int{1, 2, 4096, 100_000, 800_000} {
				got := make([]byte, n)
				k, err := v.Device.ReadAt(got, int64(at))
				want := all[min(at, len(all)):min(at+n, len(all))]
				atEnd := errors.Is(err, io.EOF)
				if !bytes.Equal(got[:k], want) || atEnd != (k < n) || err != nil && !atEnd {
					t.Errorf("%s: %d of %d bytes at %d, %v", v.Name, k, n, at, err)
				}
			}
		}
	}
}

// FuzzMetadata reads volumes that other metadata with intact checksums describes.
func FuzzMetadata(f *testing.F) {
	one, two := pair(f)
	s := text(one)
	f.Add([]byte(s))
	f.Add([]byte(strings.ReplaceAll(s, "stripe_count = 2", "stripe_count = 1")))
	f.Add([]byte("a { b = [ 1, -2, \"c\\\"\" ] # d\n } version = 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > areaSize-areaHeadBytes {
			return
		}
		readAll(t, withText(one, string(text)), two)
	})
}

// FuzzDevice reads a device with other bytes at its beginning and intact checksums.
func FuzzDevice(f *testing.F) {
	one, two := pair(f)
	f.Add(one[512:1024], one[areaStart:areaStart+areaHeadBytes])
	f.Fuzz(func(t *testing.T, label, area []byte) {
		b := bytes.Clone(one)
		copy(b[512:1024], label)
		copy(b[areaStart:areaStart+areaHeadBytes], area)
		binary.LittleEndian.PutUint32(b[512+16:], checksum(b[512+20:1024]))
		binary.LittleEndian.PutUint32(b[areaStart:], checksum(b[areaStart+4:areaStart+areaHeadBytes]))
		readAll(t, b, two)
	})
}

func readAll(t *testing.T, devices ...[]byte) {
	var list []*PhysicalVolume
	total := int64(0)
	for _, b := range devices {
		total += int64(len(b))
		if v, err := Open(bytes.NewReader(b), int64(len(b))); err == nil {
			list = append(list, v)
		}
	}
	vols, unused := Volumes(list)
	sum := int64(0)
	for _, v := range vols {
		if v.Device == nil {
			continue
		}
		if sum += v.Device.Size(); sum > total {
			t.Fatalf("%d bytes of volumes on %d", sum, total)
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(v.Device, 0, v.Device.Size())); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
	}
	if len(vols)+len(unused) == 0 && len(list) > 0 {
		t.Fatal("the devices are neither used nor unused")
	}
}
