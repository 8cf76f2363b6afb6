package ext4

import "sync"

// blockOwners maps each block of directories to its directory. Blocks that many directories share would
// make a walk as long as the product of both.
type blockOwners struct {
	mu      sync.Mutex // guards the field below
	byBlock map[uint64]*[ownerChunkBlocks]uint32
}

const (
	ownerChunkBlocks = 64      // consecutive blocks
	maxOwnerChunks   = 1 << 17 // of those; owners beyond are unknown
)

func newBlockOwners() *blockOwners {
	return &blockOwners{byBlock: map[uint64]*[ownerChunkBlocks]uint32{}}
}

// claim assigns a block to a directory, unless another one has it.
func (o *blockOwners) claim(place uint64, dir uint32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := o.byBlock[place/ownerChunkBlocks]
	if group == nil {
		if len(o.byBlock) == maxOwnerChunks {
			return true
		}
		group = &[ownerChunkBlocks]uint32{}
		o.byBlock[place/ownerChunkBlocks] = group
	}
	owner := &group[place%ownerChunkBlocks]
	if *owner == 0 {
		*owner = dir
	}
	return *owner == dir
}
