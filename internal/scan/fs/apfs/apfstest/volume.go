package apfstest

import "slices"

// Roles of volumes.
const (
	System  = 1
	Preboot = 0x10
	Data    = 1 << 6
)

// Volume describes a volume.
type Volume struct {
	Name  string
	Role  uint16
	Group [16]byte
	// Encrypted marks the volume as encrypted, without keys.
	Encrypted bool
	// Passwords encrypt the volume: each opens it.
	Passwords []string
	// HalfKey stores only the first half of its key, as after a conversion from CoreStorage.
	HalfKey bool
	// HalfWrapping wraps it with a key of AES-128, which is wrapped with one, too.
	HalfWrapping bool
	// TweakOffset is by how much the numbers that extents are encrypted with differ from those of their blocks.
	TweakOffset uint64
	// Sensitive makes names that differ in case or in how they are composed be different, and sorts
	// without hashes. CaseOnly makes only those that differ in case be different.
	Sensitive, CaseOnly bool
	// Sealed writes trees without headers, and extents in a separate tree.
	Sealed bool
	// StartAt is the snapshot in the superblock from which to start.
	StartAt string
	// WrongHashes writes wrong hashes of names.
	WrongHashes bool
	// NodeRecords is the maximum number of records of a catalog node; 0 for as many as fit.
	NodeRecords int

	Files     []File
	Snapshots []Snapshot
}

// Snapshot is an earlier state of a volume.
type Snapshot struct {
	Name  string
	Files []File
}

// features returns the flags of features that a reader must know.
func (v *Volume) features() uint64 {
	switch {
	case v.Sensitive:
		return v.seal(0)
	case v.CaseOnly:
		return v.seal(8)
	}
	return v.seal(1)
}

func (v *Volume) seal(f uint64) uint64 {
	if v.Sealed {
		f |= 0x20
	}
	return f
}

// hashed reports whether names are sorted by a hash.
func (v *Volume) hashed() bool { return !v.Sensitive }

// volume writes a volume and returns the block of its superblock, and those of its catalog.
func (w *writer) volume(v *Volume, index int) (block uint64, catalog []uint64) {
	var places []place
	var snapshots []record
	w.cipher = v.newCipher(index)
	defer func() { w.cipher = nil }()
	startAt := uint64(0)
	for i, s := range v.Snapshots {
		xid := uint64(10 + i)
		root, extents, at := w.catalog(v, s.Files, xid)
		places = append(places, at...)
		kept := v.super(index, root, extents)
		blk := w.alloc(1)
		w.object(blk, header{blk, xid, typeVolume | physical, 0}, kept)
		snapshots = append(snapshots, snapshotRecords(s.Name, xid, blk)...)
		if s.Name == v.StartAt {
			startAt = xid
		}
	}
	root, extents, at := w.catalog(v, v.Files, newestXID-2)
	sum := w.catalogHash
	for _, p := range at {
		catalog = append(catalog, p.block)
	}
	if v.Sealed {
		at = append(at, w.integrity(sum))
	}
	b := v.super(index, root, extents)
	le.PutUint64(b[128:], w.omap(newestXID-2, append(places, at...)))
	slices.SortFunc(snapshots, byKey(false))
	tree, _ := w.tree(shape{sub: typeSnapshots, xid: newestXID - 2}, snapshots)
	le.PutUint64(b[152:], tree)
	le.PutUint64(b[216:], uint64(len(v.Snapshots)))
	le.PutUint64(b[968:], startAt)
	w.addKeys(v, index)
	block = w.alloc(1)
	w.object(block, header{firstVolume + uint64(index), newestXID - 2, typeVolume, 0}, b)
	return block, catalog
}

// catalog writes the files of a volume as of a transaction.
func (w *writer) catalog(v *Volume, files []File, xid uint64) (root, extents uint64, places []place) {
	c := newCatalog(w, v)
	c.add(files)
	slices.SortFunc(c.records, byKey(v.hashed()))
	s := shape{sub: typeCatalog, xid: xid, virtual: true, first: firstCatalog, hashed: v.Sealed, full: v.NodeRecords}
	root, places = w.tree(s, c.records)
	w.catalogHash = w.rootHash
	if v.Sealed {
		slices.SortFunc(c.extents, byNumbers)
		extents, _ = w.tree(shape{sub: typeExtents, xid: xid, fixed: true, full: v.NodeRecords}, c.extents)
	}
	return root, extents, places
}

// integrity writes how the catalog of a sealed volume is hashed.
func (w *writer) integrity(root [32]byte) place {
	b := make([]byte, BlockSize)
	le.PutUint32(b[32:], 2)   // version
	le.PutUint32(b[40:], 1)   // SHA-256
	le.PutUint32(b[44:], 128) // where the hash of the root is
	copy(b[128:], root[:])
	p := place{id: integrityID, xid: newestXID - 2, block: w.alloc(1)}
	w.object(p.block, header{p.id, p.xid, typeIntegrity, 0}, b)
	return p
}

// super returns a superblock.
func (v *Volume) super(index int, root, extents uint64) []byte {
	b := make([]byte, BlockSize)
	copy(b[32:], "APSB")
	le.PutUint32(b[36:], uint32(index))
	le.PutUint64(b[56:], v.features())
	le.PutUint32(b[116:], typeTree)
	if v.Sealed {
		le.PutUint32(b[116:], typeTree|noHeader)
	}
	le.PutUint32(b[120:], typeTree|physical)
	le.PutUint32(b[124:], typeTree|physical)
	le.PutUint64(b[136:], root)
	id := volumeID(index)
	copy(b[240:], id[:])
	switch {
	case len(v.Passwords) > 0:
		le.PutUint64(b[264:], 8) // one key
	case !v.Encrypted:
		le.PutUint64(b[264:], 1)
	}
	copy(b[272:], "buildyard tests")
	copy(b[704:959], v.Name)
	le.PutUint16(b[964:], v.Role)
	copy(b[1008:], v.Group[:])
	if v.Sealed {
		le.PutUint64(b[1024:], integrityID)
		le.PutUint64(b[1032:], extents)
		le.PutUint32(b[1040:], typeTree|physical)
	}
	return b
}

// snapshotRecords describes a snapshot by its transaction and by its name.
func snapshotRecords(name string, xid, block uint64) []record {
	value := make([]byte, 50)
	le.PutUint64(value[8:], block)
	le.PutUint64(value[16:], 1_600_000_000_000_000_000+xid)
	le.PutUint16(value[48:], uint16(len(name)+1))
	byName := le.AppendUint16(key(1<<60-1, 11), uint16(len(name)+1))
	return []record{
		{key(xid, 1), append(value, name+"\x00"...)},
		{append(byName, name+"\x00"...), le.AppendUint64(nil, xid)},
	}
}
