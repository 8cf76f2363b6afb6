package record

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/farm"
)

// NewID returns a time-ordered id, so that new records are adjacent in the store.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(fmt.Sprintf("no randomness: %v", err))
	}
	return id.String()
}

// ValidID reports whether a text can be an id; others are not sent to the store.
func ValidID(id string) bool { return id != "" && len(id) <= 64 }

// LastRollout is the id of the record of the last rollout of agent packages.
const LastRollout = "last"

// CacheJobResultID returns the id of the result of a cache job on a node. Those of one cache job are
// adjacent.
func CacheJobResultID(cacheJob, node string) string { return cacheJob + "." + node }

// SplitCacheJobResultID returns the cache job and the node of a result.
func SplitCacheJobResultID(id string) (cacheJob, node string) {
	cacheJob, node, _ = strings.Cut(id, ".")
	return cacheJob, node
}

// ReleasedOrphanID returns the id of the release of an orphaned VM on a node.
func ReleasedOrphanID(node, id string) string { return node + "." + id }

// SaveScript is the chunk of a save request that has its script.
const SaveScript = "script"

// SaveScriptID returns the id of the chunk that has the script of a save request.
func SaveScriptID(request string) string { return request + "." + SaveScript }

// HistoryKey returns the id of a history record; ids sort with the newest first.
func HistoryKey(p *farm.InstanceHistory) string { return HistoryFrom(p.Finished) + "-" + p.ID }

// HistoryFrom returns the prefix of the ids of everything that finished at t; those of earlier ends
// sort after it.
func HistoryFrom(t time.Time) string { return fmt.Sprintf("%016x", math.MaxInt64-t.UnixNano()) }
