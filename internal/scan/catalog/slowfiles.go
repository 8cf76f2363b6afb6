package catalog

import (
	"sync/atomic"
	"time"
)

// Bounds on the time that slow files take together: a hostile tree may have a file that takes long in every directory.
const (
	quickFileTime = 5 * time.Second  // that every file may take
	slowFilesTime = 10 * time.Minute // that files may take in addition, all together
)

// slowFiles is the time that files took beyond quickFileTime. The zero value is that of a new scan.
type slowFiles struct{ spent atomic.Int64 }

// timeout returns how long the next file may take, at most limit.
func (s *slowFiles) timeout(limit time.Duration) time.Duration {
	left := slowFilesTime - time.Duration(s.spent.Load())
	return min(limit, quickFileTime+max(left, 0))
}

// add adds the time that a file took.
func (s *slowFiles) add(took time.Duration) {
	if took > quickFileTime {
		s.spent.Add(int64(took - quickFileTime))
	}
}
