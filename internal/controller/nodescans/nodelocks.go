package nodescans

import (
	"hash/maphash"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
)

// nodeLocks serialize the changes of the results of one node in this process.
type nodeLocks struct {
	seed  maphash.Seed
	locks *[64]lockorder.Mutex[lockorder.NodeScan] // by the hash of the node's id
}

func newNodeLocks() nodeLocks {
	return nodeLocks{maphash.MakeSeed(), new([64]lockorder.Mutex[lockorder.NodeScan])}
}

func (l nodeLocks) of(node string) *lockorder.Mutex[lockorder.NodeScan] {
	return &l.locks[maphash.String(l.seed, node)%uint64(len(l.locks))]
}
