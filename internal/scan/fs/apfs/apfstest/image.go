package apfstest

import "io"

// Container describes a container.
type Container struct {
	Volumes []Volume
	// Scattered puts the ring of checkpoints in blocks that a tree lists.
	Scattered bool
	// Blocks is its minimum size; the written container may be larger.
	Blocks uint64
}

// Layout has the locations for tests that damage a container.
type Layout struct {
	Blocks uint64
	// Checkpoints are the blocks of the superblocks in the ring, and OMaps those of their
	// object maps: the older one, then the newer one.
	Checkpoints, OMaps [2]uint64
	// Catalogs are the blocks of the catalog's nodes of each volume, leaves first.
	Catalogs [][]uint64
}

const (
	ringBlocks = 8
	newestXID  = 40

	firstVolume  = 1026 // numbers of objects of the container
	integrityID  = 1999 // and of each volume
	firstCatalog = 2000
)

// Write writes a container.
func Write(to io.WriterAt, c Container) (Layout, error) {
	w := &writer{w: to, next: 1}
	var l Layout
	ring := make([]uint64, ringBlocks)
	for i := range ring {
		if c.Scattered {
			w.alloc(i%3 + 1)
		}
		ring[i] = w.alloc(1)
	}
	ringAt, ringCount := ring[0], uint32(ringBlocks)
	if c.Scattered {
		ringCount |= 1 << 31
		var records []record
		for i, block := range ring {
			records = append(records,
				record{le.AppendUint64(nil, uint64(i)), le.AppendUint64(le.AppendUint64(nil, block), 1)})
		}
		ringAt, _ = w.tree(shape{xid: 1, fixed: true}, records)
	}
	var volumes []place
	for i := range c.Volumes {
		block, catalog := w.volume(&c.Volumes[i], i)
		volumes = append(volumes, place{id: firstVolume + uint64(i), xid: newestXID - 2, block: block})
		l.Catalogs = append(l.Catalogs, catalog)
	}
	bag := w.containerBag()
	for i := range l.OMaps {
		l.OMaps[i] = w.omap(newestXID-1+uint64(i), volumes)
	}
	l.Blocks = max(w.next, c.Blocks)
	if l.Blocks > w.next {
		w.put(l.Blocks-1, make([]byte, BlockSize))
	}
	for i := range l.Checkpoints {
		l.Checkpoints[i] = ring[1+2*i]
		xid := newestXID - 1 + uint64(i)
		w.object(ring[2*i], header{ring[2*i], xid, typeMap | physical, 0}, checkpointMap())
		super := func(at uint64) {
			b := container(len(volumes), l.Blocks, ringAt, ringCount, l.OMaps[i])
			le.PutUint32(b[128:], uint32(2*i+2)) // position of the next checkpoint
			le.PutUint32(b[136:], uint32(2*i))   // and of this one
			le.PutUint32(b[140:], 2)
			copy(b[1296:], bag)
			w.object(at, header{1, xid, typeContainer | ephemeral, 0}, b)
		}
		super(l.Checkpoints[i])
		if i == 0 {
			super(0) // an older one is at the start, as after a crash
		}
	}
	return l, w.err
}

// checkpointMap writes the list of a checkpoint's objects in memory: none.
func checkpointMap() []byte {
	b := make([]byte, BlockSize)
	le.PutUint32(b[32:], 1) // the last of the checkpoint
	return b
}

// container writes a superblock.
func container(volumes int, blocks, ring uint64, ringCount uint32, omap uint64) []byte {
	b := make([]byte, BlockSize)
	copy(b[32:], "NXSB")
	le.PutUint32(b[36:], BlockSize)
	le.PutUint64(b[40:], blocks)
	le.PutUint64(b[64:], 2) // the second version of the format
	copy(b[72:], containerID[:])
	le.PutUint64(b[88:], 5000)
	le.PutUint64(b[96:], newestXID+1)
	le.PutUint32(b[104:], ringCount)
	le.PutUint64(b[112:], ring)
	le.PutUint64(b[160:], omap)
	le.PutUint32(b[180:], 100)
	for i := range volumes {
		le.PutUint64(b[184+8*i:], firstVolume+uint64(i))
	}
	return b
}
