package nodelink

import (
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/store"
)

// TestDigestsFit: the maximum number of nodes, all of them with something to report.
func TestDigestsFit(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		now := l.db.Now()
		cacheJobs := map[string]pendingCacheJob{templateID: {kind: api.CacheJobPull, progress: 0.5}}
		orphans := map[string]orphan{"vm": {detail: &api.InventoryDetail{Status: api.InstanceStatus{VM: &api.NodeVM{
			CPUs: 1000, MemoryMB: 1 << 24, MAC: "FE:FF:FF:FF:FF:FF",
		}}}}}
		for range maxDigestNodes + 500 {
			id := uuid.NewString()
			l.Sessions.byNode[id] = &session{
				node: id, lastContact: now, inventoryAt: now, index: &l.Sessions.orphans,
				cacheJobs: cacheJobs, orphans: orphans,
			}
		}
		d := l.Peers.digest(1)
		if put := store.Put(l.db.Tables.Digests, "x", d, store.Any); put.Err() != nil ||
			len(d.Nodes) != maxDigestNodes*nodeBytes || !d.Vague {
			t.Errorf("a digest of %d nodes takes %d bytes: %v", len(d.Nodes)/nodeBytes, put.Size(), put.Err())
		}
		nodes := readDigest(d, now)
		pulls, withOrphans := 0, 0
		for _, n := range nodes {
			if n.pulls[templateID] == 0.5 {
				pulls++
			}
			if loadOf(n.orphans).VMs == 1 {
				withOrphans++
			}
		}
		if len(nodes) != maxDigestNodes || pulls != maxDigestPulls || withOrphans != maxDigestOrphans {
			t.Errorf("read: %d nodes, %d pulls, %d with orphaned VMs", len(nodes), pulls, withOrphans)
		}
	})
}
