package peers

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/internal/transfer/peerqueue"
)

// BenchmarkFind looks for a part of a disk of 60 GB that none of 8 nodes has, all of which pull it.
func BenchmarkFind(b *testing.B) {
	s := &Reader{
		opts: ReaderOptions{NodeID: "own", Excluded: &Exclusions{}}, hash: hashOf("own"), peers: map[string]*peer{},
	}
	const units = 60_000
	for i := range 8 {
		id := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
		s.peers[id] = &peer{
			hash: hashOf(id), known: true, source: api.Peer{NodeID: id, Pulling: true},
			holding: transfer.Holding{Files: map[string][]byte{"disk.img": make([]byte, units/8)}},
		}
	}
	s.list = slices.Collect(maps.Values(s.peers))
	off := int64(0)
	for b.Loop() {
		off = (off + 4<<20) % (units << 20)
		if s.Find("disk.img", off, off+4<<20) == peerqueue.AtNoPeer {
			s.Owns("disk.img", off)
		}
	}
}
