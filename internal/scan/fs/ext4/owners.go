package ext4

import "sync"

// owners maps each block of directories to its directory. Blocks that many directories share would
// make a walk as long as the product of both.
type owners struct {
	mu sync.Mutex // guards the field below
	at map[uint64]*[ownersOf]uint32
}

const (
	ownersOf  = 64      // consecutive blocks
	maxOwners = 1 << 17 // of those; owners beyond are unknown
)

func newOwners() *owners { return &owners{at: map[uint64]*[ownersOf]uint32{}} }

// claim assigns a block to a directory, unless another one has it.
func (o *owners) claim(place uint64, folder uint32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := o.at[place/ownersOf]
	if group == nil {
		if len(o.at) == maxOwners {
			return true
		}
		group = &[ownersOf]uint32{}
		o.at[place/ownersOf] = group
	}
	owner := &group[place%ownersOf]
	if *owner == 0 {
		*owner = folder
	}
	return *owner == folder
}
