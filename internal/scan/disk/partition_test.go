package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

// memory is a disk in memory.
type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func partitions(t testing.TB, m memory) []disk.Partition {
	t.Helper()
	list, err := disk.Partitions(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func gpt(t testing.TB, sector int64) memory {
	t.Helper()
	m := make(memory, 8<<20)
	err := disktest.WriteGPT(m, int64(len(m)), sector,
		disktest.Part{Type: disktest.EFI, Name: "EFI System", Start: 1 << 20, Length: 1 << 20},
		disktest.Part{Type: disktest.APFS, Name: "Größe\x1b[31m", Start: 2 << 20, Length: 3 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGPT(t *testing.T) {
	want := []disk.Partition{
		{Index: 1, Type: disktest.EFI, Name: "EFI System", Start: 1 << 20, Length: 1 << 20},
		{Index: 2, Type: disktest.APFS, Name: "Größe[31m", Start: 2 << 20, Length: 3 << 20},
	}
	for _, sector := range []int64{512, 4096} {
		m := gpt(t, sector)
		if got := partitions(t, m); !slices.Equal(got, want) {
			t.Errorf("%d: %+v", sector, got)
		}
		m[sector+20]++ // in the header
		if got := partitions(t, m); !slices.Equal(got, want) {
			t.Errorf("%d, by the copy: %+v", sector, got)
		}
		m[len(m)-int(sector)+24]++
		if got, err := disk.Partitions(bytes.NewReader(m), int64(len(m))); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("%d, both damaged: %+v, %v", sector, got, err)
		}
		m = gpt(t, sector)
		m[2*sector+40]++ // in the table
		if got := partitions(t, m); !slices.Equal(got, want) {
			t.Errorf("%d, by the other table: %+v", sector, got)
		}
		short := gpt(t, sector)[:4<<20] // a truncated disk
		if got := partitions(t, short); got[1].Length != 2<<20 {
			t.Errorf("%d, cut: %+v", sector, got)
		}
	}
}

// entry writes an entry of an MBR, in sectors.
func (m memory) entry(at int, kind byte, start, n uint32) {
	sector := at / 512 * 512
	m[sector+510], m[sector+511] = 0x55, 0xaa
	m[at+4] = kind
	binary.LittleEndian.PutUint32(m[at+8:], start)
	binary.LittleEndian.PutUint32(m[at+12:], n)
}

func TestMBR(t *testing.T) {
	m := make(memory, 8<<20)
	m.entry(446, 0x83, 2048, 2048)
	m.entry(462, 0x05, 4096, 8192)
	const table = 4096 * 512
	m.entry(table+446, 0x83, 64, 1000)
	m.entry(table+462, 0x05, 2048, 2048)
	const next = table + 2048*512
	m.entry(next+446, 0x82, 64, 500)
	want := []disk.Partition{
		{Index: 1, Type: "83", Start: 1 << 20, Length: 1 << 20},
		{Index: 5, Type: "83", Start: table + 64*512, Length: 1000 * 512},
		{Index: 6, Type: "82", Start: next + 64*512, Length: 500 * 512},
	}
	if got := partitions(t, m); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// Partitions of an interrupted list are unknown: the extended partition represents them.
func TestLostLogical(t *testing.T) {
	const table, next = 4096 * 512, 6144 * 512
	for name, c := range map[string]struct {
		damage func(m memory) memory
		parts  int // that are known
		told   string
	}{
		"whole": {func(m memory) memory { return m }, 3, ""},
		"no first mark": {func(m memory) memory {
			m[table+510]++
			return m
		}, 1, "is cut off at sector 4096, which is not a table"},
		"no other mark": {func(m memory) memory {
			m[next+510]++
			return m
		}, 2, "is cut off at sector 6144, which is not a table"},
		"cut": {func(m memory) memory { return m[:next] }, 2, "failed at sector 6144: unexpected EOF"},
		"in the first": {func(m memory) memory {
			m.entry(446, 0x82, 2048, 4096)
			m[table+510]++
			return m
		}, 1, "is cut off at sector 4096, which is not a table"},
		"a circle": {func(m memory) memory {
			m.entry(next+462, 0x05, 2048, 2048)
			return m
		}, 3, "goes back from sector 6144 to 6144"},
		"without end": {func(m memory) memory {
			for at := 2048; at < 2048+200; at++ {
				m.entry((4096+at)*512+462, 0x05, uint32(at+1), 1)
			}
			return m
		}, 3, "more than 128 tables"},
	} {
		m := make(memory, 8*mib)
		m.entry(446, 0x82, 2048, 2048)
		m.entry(462, 0x05, 4096, 8192)
		m.entry(table+446, 0x82, 64, 1000)
		m.entry(table+462, 0x05, 2048, 2048)
		m.entry(next+446, 0x82, 64, 500)
		m = c.damage(m)
		_, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
		var told []string
		for _, s := range skipped {
			if s.MayHavePackages {
				told = append(told, s.Name+": "+s.Reason)
			}
		}
		switch {
		case err != nil || len(skipped) != c.parts+len(told):
			t.Errorf("%s: %+v, %v", name, skipped, err)
		case c.told == "" && len(told) == 0:
		case len(told) != 1 || !strings.HasPrefix(told[0], "partition 2 (the extended partition): ") ||
			!strings.HasSuffix(told[0], c.told):
			t.Errorf("%s: %q", name, told)
		}
	}
}

// A disk without a table is one partition, also where a boot sector looks like a table.
func TestNoTable(t *testing.T) {
	m := make(memory, 1<<20)
	whole := []disk.Partition{{Length: 1 << 20}}
	if got := partitions(t, m); !slices.Equal(got, whole) {
		t.Errorf("%+v", got)
	}
	for k := 3; k < 510; k++ {
		m[k] = byte('a' + k%20)
	}
	m[510], m[511] = 0x55, 0xaa
	if got := partitions(t, m); !slices.Equal(got, whole) {
		t.Errorf("%+v", got)
	}
	if got := partitions(t, m[:100]); !slices.Equal(got, []disk.Partition{{Length: 100}}) {
		t.Errorf("%+v", got)
	}
}

// A partition after the end of a truncated disk does not affect the others. Where nothing else
// indicates a table, or the disk itself has a signature, it is not a table.
func TestCutMBR(t *testing.T) {
	m := make(memory, 4*mib)
	m.entry(446, 0x83, 2048, 2048)
	m.entry(462, 0x83, 6144, 8192)
	m.entry(478, 0x82, 16384, 2048)
	m.entry(494, 0x05, 32768, 2048)
	got := partitions(t, m)
	for k, want := range []disk.Partition{
		{Index: 1, Type: "83", Start: mib, Length: mib},
		{Index: 2, Type: "83", Start: 3 * mib, Length: mib},
		{Index: 3, Type: "82", Start: 4 * mib},
	} {
		if len(got) != 4 || got[k] != want {
			t.Fatalf("%+v", got)
		}
	}
	if last := got[3]; last.Index != 4 || last.Length != 0 || last.Err == nil {
		t.Errorf("%+v", last)
	}
	copy(m[mib+4086:], "SWAPSPACE2")
	_, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
	if err != nil || len(skipped) != 4 || skipped[0].MayHavePackages || !skipped[2].MayHavePackages ||
		!skipped[3].MayHavePackages {
		t.Errorf("%+v, %v", skipped, err)
	}
	for name, spoil := range map[string]func(m memory){
		"all behind":   func(m memory) { clear(m[446:478]) },
		"overlapping":  func(m memory) { m.entry(494, 0x83, 16384, 1) },
		"FAT":          func(m memory) { copy(m[54:], "FAT16   ") },
		"ext4":         func(m memory) { copy(m[1080:], "\x53\xef") },
		"flag of code": func(m memory) { m[478] = 0x33 },
	} {
		m := bytes.Clone(m)
		spoil(m)
		if got := partitions(t, m); len(got) != 1 || got[0].Index != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// seal recomputes the checksums of a table.
func (m memory) seal(sector int) {
	le := binary.LittleEndian
	h := m[sector : 2*sector]
	at, n := le.Uint64(h[72:])*uint64(sector), uint64(le.Uint32(h[80:]))*uint64(le.Uint32(h[84:]))
	if end := uint64(len(m)); at < end && n < end-at {
		le.PutUint32(h[88:], crc32.ChecksumIEEE(m[at:at+n]))
	}
	clear(h[16:20])
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
}

// Invalid tables are refused with an error message, or cut off at the end of the disk, and cost no
// memory.
func TestLyingTables(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		lie  func(header, table []byte)
		want string // "" for none at all
	}{
		"2^32 entries":      {func(h, _ []byte) { le.PutUint32(h[80:], 1<<32-1) }, "4294967295 entries of 128 bytes"},
		"entries of 1 byte": {func(h, _ []byte) { le.PutUint32(h[84:], 1) }, "entries of 1 bytes"},
		"huge entries":      {func(h, _ []byte) { le.PutUint32(h[84:], 1<<31) }, "entries of 2147483648 bytes"},
		"table at 2^60":     {func(h, _ []byte) { le.PutUint64(h[72:], 1<<60) }, "past its end"},
		"table at 2^55":     {func(h, _ []byte) { le.PutUint64(h[72:], 1<<55) }, "past its end"},
		"header at 2^60":    {func(h, _ []byte) { le.PutUint64(h[24:], 1<<60) }, "checksum"},
		"huge header":       {func(h, _ []byte) { le.PutUint32(h[12:], 1<<32-1) }, "checksum"},
		"begins at 2^60": {func(_, e []byte) {
			le.PutUint64(e[32:], 1<<60)
			le.PutUint64(e[40:], 1<<60)
		}, "from sector 1152921504606846976"},
		"ends at 2^53": {func(_, e []byte) { le.PutUint64(e[40:], 1<<52) }, ""},
		"ends before":  {func(_, e []byte) { le.PutUint64(e[40:], 1) }, "from sector 80 to 1"},
		"all the same": {func(_, e []byte) { copy(e[128:], e[:128]) }, ""},
	} {
		m := make(memory, 1<<18)
		if err := disktest.WriteGPT(m, int64(len(m)), 512,
			disktest.Part{Type: disktest.Linux, Name: "one", Start: 40960, Length: 65536}); err != nil {
			t.Fatal(err)
		}
		clear(m[len(m)-512:]) // the copy
		c.lie(m[512:1024], m[1024:])
		m.seal(512)
		list, err := disk.Partitions(bytes.NewReader(m), int64(len(m)))
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, disk.ErrDamaged)) {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range list {
			if p.Start != 40960 || p.Length <= 0 || p.Start+p.Length > int64(len(m)) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

// FuzzPartitions changes some bytes of a disk, recomputes the checksums, and reads its tables. A
// patch is three bytes of offset and one of content.
func FuzzPartitions(f *testing.F) {
	const size = 1 << 18
	bases := []memory{make(memory, size), make(memory, size), make(memory, size), make(memory, size)}
	for k, sector := range []int64{512, 4096} {
		parts := []disktest.Part{
			{Type: disktest.EFI, Name: "one", Start: 40960, Length: 65536},
			{Type: disktest.Linux, Start: 114688, Length: 65536},
		}
		if err := disktest.WriteGPT(bases[k], size, sector, parts...); err != nil {
			f.Fatal(err)
		}
		f.Add(byte(k), []byte{0, byte(sector >> 8), 72, 9})
		f.Add(byte(k), []byte{0, byte(sector >> 8), 80, 255, 0, byte(sector>>8) * 2, 40, 200})
	}
	m := bases[2]
	m.entry(446, 0x83, 1, 2)
	m.entry(462, 0x05, 4, 10)
	m.entry(4*512+446, 0x83, 1, 1)
	m.entry(4*512+462, 0x05, 2, 2)
	f.Add(byte(2), []byte{0, 9, 206, 1})
	if err := disktest.WriteAppleMap(bases[3], size, 512,
		disktest.Part{Type: disktest.AppleHFS, Start: 40960, Length: 65536}); err != nil {
		f.Fatal(err)
	}
	f.Add(byte(3), []byte{0, 2, 7, 200})
	f.Add(byte(3), []byte{0, 0, 2, 8, 0, 4, 8, 255})
	f.Fuzz(func(t *testing.T, which byte, patches []byte) {
		m := bytes.Clone(bases[int(which)%len(bases)])
		for ; len(patches) >= 4; patches = patches[4:] {
			m[(int(patches[0])<<16|int(patches[1])<<8|int(patches[2]))%size] = patches[3]
		}
		for k, sector := range []int{512, 4096} {
			if int(which)%len(bases) == k {
				memory(m).seal(sector)
			}
		}
		list, err := disk.Partitions(bytes.NewReader(m), size)
		if err != nil {
			return
		}
		for _, p := range list {
			if p.Start < 0 || p.Length < 0 || p.Start > size || p.Length > size-p.Start {
				t.Fatalf("%+v of %d bytes", p, size)
			}
		}
		if _, _, err := disk.Volumes(bytes.NewReader(m), size); err != nil && !errors.Is(err, disk.ErrNotDisk) {
			t.Fatal(err)
		}
	})
}
