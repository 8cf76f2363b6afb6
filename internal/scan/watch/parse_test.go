package watch

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

const someMounts = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 0:41 / /mnt/a\040b rw - tmpfs tmp\040fs rw
41 40 0:42 /sub\134x /mnt/a\040b rw,noexec unbindable - xfs /dev/sdb rw
42 27 0:43 / /mnt/hidden/deep rw - tmpfs none rw
43 27 0:44 / /mnt/hidden rw - tmpfs none rw
44 27 0:45 /gone//deleted /mnt/gone rw - tmpfs none rw
`

func TestMountTable(t *testing.T) {
	list := parseMounts([]byte(someMounts +
		"nonsense\n1 2 3 - x\n\n45 27 0:46 / relative rw - tmpfs none rw\n46 27 0:46 / /a/../b rw - tmpfs none rw"))
	if len(list) != 6 {
		t.Fatalf("%d mounts: %+v", len(list), list)
	}
	tab := newMountTable(list)
	var seen []string
	for _, m := range tab.visibleMounts() {
		seen = append(seen, m.fsType+" "+m.mountPoint)
	}
	want := []string{"proc /proc", "ext4 /", "xfs /mnt/a b", "tmpfs /mnt/hidden"}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
	for path, id := range map[string]int{
		"/": 27, "/mnt/a b": 41, "/mnt/a b/c/d": 41, "/mnt/a": 27, "/proc/1": 22, "/mnt/hidden/deep/x": 42,
	} {
		if m, ok := tab.mountOf(path); !ok || m.id != id {
			t.Errorf("%s lies in %+v", path, m)
		}
	}
	if m := list[3]; m.root != `/sub\x` {
		t.Errorf("%+v", m)
	}
	less := newMountTable(list[:3])
	if got := changedPoints(less, tab); !slices.Equal(got, []string{"/mnt/a b", "/mnt/hidden"}) {
		t.Errorf("%q changed", got)
	}
	if got := changedPoints(tab, tab); got != nil {
		t.Errorf("%q changed", got)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add(someMounts)
	f.Add("1 1 0:1 / / rw - tmpfs\n2 1 0:1 / / rw - tmpfs x\n1 2 0:1 /\\777 /\\057 rw - a")
	f.Add(`9 8 7 /\0 /\04 - x y z`)
	f.Fuzz(func(t *testing.T, s string) {
		tab := newMountTable(parseMounts([]byte(s)))
		for _, m := range tab.visibleMounts() {
			if !isCleanPath(m.mountPoint) || !isCleanPath(m.root) {
				t.Errorf("%+v", m)
			}
			if o, ok := tab.mountOf(m.mountPoint); !ok || o.id != m.id && o.mountPoint != m.mountPoint {
				t.Errorf("%+v is owned by %+v", m, o)
			}
		}
		if c := changedPoints(tab, tab); len(c) > 0 && !strings.ContainsAny(s, "\n") {
			t.Error(c)
		}
		changedPoints(newMountTable(nil), tab)
	})
}

// fanBytes writes an event as the kernel does.
func fanBytes(mask uint64, fd, pid int32, infos ...[]byte) []byte {
	o := binary.NativeEndian
	b := make([]byte, fanEventHeaderSize)
	b[4] = fanVersion
	o.PutUint16(b[6:], fanEventHeaderSize)
	o.PutUint64(b[8:], mask)
	o.PutUint32(b[16:], uint32(fd))
	o.PutUint32(b[20:], uint32(pid))
	for _, i := range infos {
		b = append(b, i...)
	}
	o.PutUint32(b, uint32(len(b)))
	return b
}

// fanInfo writes a record of an event.
func fanInfo(kind byte, handle, name string) []byte {
	o := binary.NativeEndian
	b := make([]byte, fanInfoHeaderSize+fanFSIDSize+fanHandleHeaderSize)
	b[0] = kind
	copy(b[fanInfoHeaderSize:], "fsidfsid")
	o.PutUint32(b[fanInfoHeaderSize+fanFSIDSize:], uint32(len(handle)))
	o.PutUint32(b[fanInfoHeaderSize+fanFSIDSize+4:], 7)
	b = append(b, handle...)
	if kind == infoDfidName {
		b = append(b, name...)
		b = append(b, 0, 0)
	}
	o.PutUint16(b[2:], uint16(len(b)))
	return b
}

func TestFanEvents(t *testing.T) {
	buf := slices.Concat(
		fanBytes(8, -1, 42, fanInfo(infoDfidName, "handle", "package.json")),
		fanBytes(0x4000, -1, 0),
		fanBytes(0x100, -1, 1, fanInfo(99, "", ""), fanInfo(infoFid, "own", ""), fanInfo(infoDfid, "dir", "")),
	)
	e, rest, err := nextFanEvent(buf)
	if err != nil || e.mask != 8 || e.pid != 42 || e.fd != -1 || string(e.name) != "package.json" {
		t.Errorf("%+v %v", e, err)
	}
	if fsid, kind, data, ok := splitHandle(e.handle); !ok || string(fsid[:]) != "fsidfsid" || kind != 7 ||
		string(data) != "handle" {
		t.Errorf("%q %d %q", fsid, kind, data)
	}
	if e, rest, err = nextFanEvent(rest); err != nil || e.mask != 0x4000 || e.handle != nil {
		t.Errorf("%+v %v", e, err)
	}
	if e, rest, err = nextFanEvent(rest); err != nil || string(e.name) != "." ||
		!strings.HasSuffix(string(e.handle), "dir") || len(rest) != 0 {
		t.Errorf("%+v %v", e, err)
	}
	for i := range len(buf) { // no truncation makes it read out of bounds
		for b := buf[:i]; len(b) > 0; {
			if _, b, err = nextFanEvent(b); err != nil {
				break
			}
		}
	}
}

func FuzzFanEvents(f *testing.F) {
	f.Add(fanBytes(8, -1, 42, fanInfo(infoDfidName, "handle", "package.json")))
	f.Add(slices.Concat(fanBytes(0x4000, 3, 0), fanBytes(1, 0, 0, fanInfo(infoDfid, strings.Repeat("h", 200), ""))))
	f.Add(fanBytes(8, -1, 42, fanInfo(infoDfidName, "", "")[:12]))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			e, rest, err := nextFanEvent(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) || len(e.handle) > fanFSIDSize+fanHandleHeaderSize+fanMaxHandleSize {
				t.Fatalf("%+v", e)
			}
			if _, _, data, ok := splitHandle(e.handle); ok && len(data) > fanMaxHandleSize {
				t.Fatalf("a handle of %d bytes", len(data))
			}
			b = rest
		}
	})
}

func FuzzInoEvents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00abc\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xff\xff\xff\xffabc\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			e, rest, err := nextInoEvent(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) || strings.ContainsRune(e.name, 0) {
				t.Fatalf("%+v", e)
			}
			b = rest
		}
	})
}
