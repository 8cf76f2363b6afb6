package s3

import "slices"

// byteRange is the bytes from start to end, without end.
type byteRange struct{ start, end int64 }

// byteRanges are disjoint ranges in order.
type byteRanges []byteRange

// add adds a range.
func (r byteRanges) add(added byteRange) byteRanges {
	if added.start >= added.end {
		return r
	}
	out := make(byteRanges, 0, len(r)+1)
	for _, old := range r {
		if old.end < added.start || old.start > added.end {
			out = append(out, old)
			continue
		}
		added.start, added.end = min(added.start, old.start), max(added.end, old.end)
	}
	out = append(out, added)
	slices.SortFunc(out, func(a, b byteRange) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	return out
}

// remove removes a range.
func (r byteRanges) remove(removed byteRange) byteRanges {
	if removed.start >= removed.end {
		return r
	}
	out := make(byteRanges, 0, len(r)+1)
	for _, old := range r {
		if left := (byteRange{old.start, min(old.end, removed.start)}); left.start < left.end {
			out = append(out, left)
		}
		if right := (byteRange{max(old.start, removed.end), old.end}); right.start < right.end {
			out = append(out, right)
		}
	}
	return out
}

// prefix returns the end of the range that begins at 0.
func (r byteRanges) prefix() int64 {
	if len(r) == 0 || r[0].start > 0 {
		return 0
	}
	return r[0].end
}
