package apfs

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

const (
	volumeMagic      = 0x42535041 // "APSB"
	volumeHeaderSize = 1056       // bytes that are read of a volume's superblock

	caseInsensitive          = 0x01
	normalizationInsensitive = 0x08
	sealedVolume             = 0x20

	flagUnencrypted = 0x01 // flags of a volume
	flagOneKey      = 0x08 // all its files are encrypted with the key of the volume

	maxSnapshots = 10_000
)

// roles are the uses of volumes: those with one bit, and those with a number above the bits.
var roles = map[uint16]string{
	0: "none", 1: "system", 2: "user", 4: "recovery", 8: "vm", 0x10: "preboot", 0x20: "installer",
	1 << 6: "data", 2 << 6: "baseband", 3 << 6: "update", 4 << 6: "xart", 5 << 6: "hardware",
	6 << 6: "backup", 9 << 6: "enterprise", 11 << 6: "prelogin",
}

// volumeSuperblock has the fields of a volume's superblock, the live one or a snapshot's.
type volumeSuperblock struct {
	xid                    uint64
	incompatFeatures       uint64 // those that a reader must know
	flags                  uint64
	omapBlock              uint64
	treeType               uint32
	rootTree, snapshotTree uint64
	revertTo               uint64
	name                   string
	role                   uint16
	rootSnapshotXID        uint64
	id, groupUUID          [16]byte
	cryptoState            uint64 // object of a change of the encryption that is not complete; 0 for none
	extentTree             uint64
	extentTreeType         uint32
}

func parseVolume(b []byte) (volumeSuperblock, error) {
	if len(b) < volumeHeaderSize || le.Uint32(b[32:]) != volumeMagic {
		return volumeSuperblock{}, damaged("a volume has no superblock")
	}
	name, _, _ := bytes.Cut(b[704:960], []byte{0})
	return volumeSuperblock{
		xid: le.Uint64(b[16:]), incompatFeatures: le.Uint64(b[56:]), flags: le.Uint64(b[264:]),
		treeType: le.Uint32(b[116:]), omapBlock: le.Uint64(b[128:]), rootTree: le.Uint64(b[136:]),
		snapshotTree: le.Uint64(b[152:]),
		revertTo:     le.Uint64(b[160:]), name: strings.ToValidUTF8(string(name), "\ufffd"), role: le.Uint16(b[964:]),
		rootSnapshotXID: le.Uint64(b[968:]), id: [16]byte(b[240:]), groupUUID: [16]byte(b[1008:1024]),
		cryptoState: le.Uint64(b[976:]),
		extentTree:  le.Uint64(b[1032:]), extentTreeType: le.Uint32(b[1040:]),
	}, nil
}

// Volume is a volume of a container. It is safe for concurrent use.
type Volume struct {
	container  *Container
	superblock volumeSuperblock

	mu     sync.Mutex     // guards the field below
	cipher *keybag.Cipher // of an unlocked volume
}

func newVolume(c *Container, b []byte) (*Volume, error) {
	sb, err := parseVolume(b)
	return &Volume{container: c, superblock: sb}, err
}

// Name returns the volume's name.
func (v *Volume) Name() string { return v.superblock.name }

// Role returns the use of the volume: "system", "data", "preboot", "recovery", "vm", "update", ...
// or "none". An unknown one is a number.
func (v *Volume) Role() string {
	if name, ok := roles[v.superblock.role]; ok {
		return name
	}
	return fmt.Sprintf("role-%d", v.superblock.role)
}

// Group returns the UUID of the volume group, which a system and a data volume share; "" for a
// volume in none.
func (v *Volume) Group() string {
	if v.superblock.groupUUID == ([16]byte{}) {
		return ""
	}
	s := strings.ToUpper(hex.EncodeToString(v.superblock.groupUUID[:]))
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Encrypted reports whether the volume is encrypted, so that FS refuses it before Unlock.
func (v *Volume) Encrypted() bool { return v.superblock.flags&flagUnencrypted == 0 }

// Sealed reports whether the volume is sealed: its extents are in a separate tree.
func (v *Volume) Sealed() bool { return v.superblock.incompatFeatures&sealedVolume != 0 }

// openObjectMap reads the volume's object map, which its snapshots have, too.
func (v *Volume) openObjectMap(d *device) (*omap, error) {
	v.mu.Lock()
	c := v.cipher
	v.mu.Unlock()
	m, err := openOMap(d, v.superblock.omapBlock, c)
	if err != nil {
		return nil, fmt.Errorf("volume %q: %w", v.superblock.name, err)
	}
	return m, nil
}

// FS returns the volume's files. For a volume that starts from a snapshot, as a sealed system
// volume does, it returns those of the snapshot. The error of an encrypted volume that was not unlocked
// wraps ErrEncrypted.
func (v *Volume) FS() (*FS, error) {
	if v.isLocked() {
		return nil, fmt.Errorf("read volume %q: %w", v.superblock.name, ErrEncrypted)
	}
	s, err := v.startSnapshot()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return v.openFS(v.superblock, v.container.xid, v.superblock.name)
	}
	return v.openSnapshot(*s)
}

// ErrNoSnapshot means that a volume has no snapshot with the requested name.
var ErrNoSnapshot = errors.New("snapshot not found")

// SnapshotFS returns the files of a snapshot by its name. The error wraps ErrNoSnapshot where there
// is none.
func (v *Volume) SnapshotFS(name string) (*FS, error) {
	if v.isLocked() {
		return nil, fmt.Errorf("read snapshot %q of volume %q: %w", name, v.superblock.name, ErrEncrypted)
	}
	all, err := v.Snapshots()
	for _, s := range all {
		if s.Name == name {
			return v.openSnapshot(s)
		}
	}
	if err == nil {
		err = ErrNoSnapshot
	}
	return nil, fmt.Errorf("read snapshot %q of volume %q: %w", name, v.superblock.name, err)
}

// Snapshot is a preserved state of a volume.
type Snapshot struct {
	Name    string
	Created time.Time

	xid             uint64
	superblockBlock uint64 // of its copy of the volume's superblock
}

// updateSnapshot is the prefix of the snapshots that macOS starts from, where the superblock does
// not name one.
const updateSnapshot = "com.apple.os.update-"

// startSnapshot returns the snapshot that the volume starts from, or nil.
func (v *Volume) startSnapshot() (*Snapshot, error) {
	want := cmp.Or(v.superblock.rootSnapshotXID, v.superblock.revertTo)
	if want == 0 && !v.Sealed() {
		return nil, nil
	}
	all, err := v.Snapshots()
	if err != nil {
		return nil, err
	}
	var last *Snapshot
	for i, s := range all {
		if s.xid == want || want == 0 && strings.HasPrefix(s.Name, updateSnapshot) {
			last = &all[i]
		}
	}
	if want != 0 && last == nil {
		return nil, fmt.Errorf("volume %q: %w", v.superblock.name,
			damaged("it starts from snapshot %d, which is not there", want))
	}
	return last, nil
}

// Snapshots lists the snapshots, the oldest first.
func (v *Volume) Snapshots() ([]Snapshot, error) {
	if v.superblock.snapshotTree == 0 {
		return nil, nil
	}
	t, err := openTree(v.container.device.withOwnCache(), nil, v.superblock.snapshotTree, 0)
	if err != nil {
		return nil, fmt.Errorf("list snapshots of volume %q: %w", v.superblock.name, err)
	}
	var out []Snapshot
	c, err := t.seek(recordKey{})
	for ; err == nil && !c.atEnd(); err = c.next() {
		k, ok := parseRecordKey(c.key())
		if !ok || k.kind != recordSnapshot {
			continue
		}
		s, ok := parseSnapshot(c.value())
		if !ok {
			err = damaged("snapshot %d has no description", k.id)
			break
		}
		if len(out) == maxSnapshots {
			err = damaged("it has more than %d snapshots", maxSnapshots)
			break
		}
		s.xid = k.id
		out = append(out, s)
	}
	if err != nil {
		err = fmt.Errorf("list snapshots of volume %q: %w", v.superblock.name, err)
	}
	return out, err
}

func parseSnapshot(b []byte) (s Snapshot, ok bool) {
	if len(b) < 50 {
		return s, false
	}
	name := b[50:]
	if n := int(le.Uint16(b[48:])); n < len(name) {
		name = name[:n]
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	return Snapshot{Name: string(name), Created: toTime(le.Uint64(b[16:])), superblockBlock: le.Uint64(b[8:])}, true
}

// openSnapshot reads the superblock of a snapshot, and opens its files.
func (v *Volume) openSnapshot(s Snapshot) (*FS, error) {
	b, err := v.container.device.readObject(s.superblockBlock, typeVolume)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %q of volume %q: %w", s.Name, v.superblock.name, err)
	}
	sb, err := parseVolume(b)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %q of volume %q: %w", s.Name, v.superblock.name, err)
	}
	return v.openFS(sb, s.xid, v.superblock.name+"@"+s.Name)
}
