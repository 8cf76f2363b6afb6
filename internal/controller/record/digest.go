package record

import "github.com/buildyard/buildyard/internal/farm"

// Digest holds what one replica has heard of the nodes that poll it, and that is not stored
// otherwise: how long ago each was in contact, its load, the progress of its pulls, and its
// orphaned VMs. A replica that decides node states, places or shows a node must know what the
// others hear. A single replica writes none.
type Digest struct {
	No    int64 `json:"no"`              // grows, so that no two are equal
	Keeps bool  `json:"keeps,omitempty"` // its replica holds the lease
	// 16 bytes of the node's id, 2 of the age in units of ageUnit, and so on
	Nodes []byte `json:"nodes"`
	// of each of Nodes its processors' and its memory's, in hundredths
	Loads   []byte            `json:"loads,omitempty"`
	Pulls   map[string][]byte `json:"pulls,omitempty"`   // cache job id -> 2 bytes of index in Nodes, 1 of percent, ...
	Orphans []OrphanReport    `json:"strange,omitempty"` // nodes with orphaned VMs
	Vague   bool              `json:"vague,omitempty"`   // there are more of these
	Pulled  int64             `json:"pulled,omitempty"`  // bytes that its nodes have pulled since its replica runs
	// of each of Nodes the bytes that it has pulled since then, as varints
	NodesPulled []byte `json:"nodes_pulled,omitempty"`
}

// OrphanReport describes the orphaned VMs of a node.
type OrphanReport struct {
	At       int        `json:"at"` // index of the node in Digest.Nodes
	VMs      int        `json:"vms,omitempty"`
	VCPU     int        `json:"vcpu,omitempty"`
	MemoryMB int        `json:"memory_mb,omitempty"`
	MACs     []farm.MAC `json:"macs,omitempty"`
	Vague    bool       `json:"vague,omitempty"` // of some it is not known yet what they are
}
