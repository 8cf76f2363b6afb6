package instances

import (
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// maxEqualFailures bounds the instances that EqualFailures reads, for each of its two numbers.
const maxEqualFailures = 1000

// EqualFailures are the numbers of instances that are in Error now for the same cause, as far as they are counted.
type EqualFailures struct {
	Template      int // with the same class, template and version
	TemplateNodes int // nodes on which those failed
	Node          int // with the same class on the same node
}

// EqualFailures counts the instances that are in Error like inst, which is included. It reads only those.
func (s *Instances) EqualFailures(inst *farm.Instance) (n EqualFailures) {
	view := s.db.Tables.Instances.Snapshot()
	nodes := map[string]bool{}
	for _, other := range view.Where(record.ByFailure, record.FailureOfTemplate(inst)) {
		if n.Template == maxEqualFailures {
			break
		}
		n.Template++
		if other.NodeID != "" {
			nodes[other.NodeID] = true
		}
	}
	n.TemplateNodes = len(nodes)
	if inst.NodeID == "" {
		return n
	}
	for range view.Where(record.ByFailure, record.FailureOfNode(inst)) {
		if n.Node == maxEqualFailures {
			break
		}
		n.Node++
	}
	return n
}
