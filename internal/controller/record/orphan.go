package record

import (
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// OrphanedVM is a VM on a node without an owning record.
type OrphanedVM struct {
	Node     *farm.Node
	ID       string // of its instance, or of the VM where no instance is known
	Held     api.InventoryItem
	Since    time.Time
	Detail   *api.InventoryDetail // nil until its node has reported the details
	Released bool                 // an operator released it for removal
	Ordered  bool                 // its node has the order to remove it
}

// ErrNotOrphaned is the error for a VM that is not, or no longer, an orphaned one of its node.
var ErrNotOrphaned = errors.New("the VM is not orphaned")
