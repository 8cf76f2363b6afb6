package blob

import (
	"cmp"
	"slices"
)

// ChainIDs returns the chain ID of every chain that this one rests on, and its own as the last.
func (c *Chain) ChainIDs() []Digest {
	out := make([]Digest, len(c.indexes))
	for i, x := range c.indexes {
		out[i] = x.ChainID()
	}
	return out
}

// ChangedSince returns where the file may differ from that of the chain of the first n layers, in order, without
// overlap and within the larger of both files. It is false when there are more than limit ranges.
func (c *Chain) ChangedSince(n, limit int) ([]Run, bool) {
	var all []Run
	full := false
	add := func(r Run) bool {
		if k := len(all) - 1; k >= 0 && r.Off >= all[k].Off && r.Off <= all[k].Off+all[k].Len {
			all[k].Len = max(all[k].Len, r.Off+r.Len-all[k].Off)
			return true
		}
		full = full || len(all) >= 2*limit
		all = append(all, r)
		return !full
	}
	for i := n; i < len(c.indexes) && !full; i++ {
		x, below := c.indexes[i], c.indexes[i-1].contentSize
		w := newLayerWalk(x, 0)
		for e, ok := w.next(0); ok && e.off < x.contentSize; e, ok = w.next(e.end) {
			if !add(Run{Off: e.off, Len: min(e.end, x.contentSize) - e.off}) {
				return nil, false
			}
		}
		if low, high := min(x.contentSize, below), max(x.contentSize, below); low < high {
			add(Run{Off: low, Len: high - low})
		}
	}
	slices.SortFunc(all, func(a, b Run) int { return cmp.Compare(a.Off, b.Off) })
	sorted := all
	all = all[:0]
	for _, r := range sorted {
		add(r)
	}
	return all, len(all) <= limit
}
