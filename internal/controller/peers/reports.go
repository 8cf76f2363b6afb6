package peers

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

const (
	// reportLife is how long a report counts. It is longer than a node excludes a peer, so that one exclusion is
	// reported once.
	reportLife = 11 * time.Minute
	// minReaders is how many nodes must report a peer before it is named to none: one node alone cannot take a peer
	// from others.
	minReaders = 2
	// maxReported bounds the peers that one node may report at a time; further reports count only for itself.
	maxReported = 16
)

// reports are the nodes that got wrong bytes from peers.
type reports struct {
	byPeer map[string]map[string]time.Time // peer -> reader -> since when
	count  map[string]int                  // reader -> peers that it reports
}

// add records a report. isNew: it is the first one of this reader within reportLife.
func (r *reports) add(peer, reader string, now time.Time) (isNew bool) {
	if r.byPeer == nil {
		r.byPeer, r.count = map[string]map[string]time.Time{}, map[string]int{}
	}
	if r.count[reader] >= maxReported {
		r.prune(now)
	}
	r.prunePeer(peer, now)
	if _, known := r.byPeer[peer][reader]; known || r.count[reader] >= maxReported {
		return false
	}
	if r.byPeer[peer] == nil {
		r.byPeer[peer] = map[string]time.Time{}
	}
	r.byPeer[peer][reader] = now
	r.count[reader]++
	return true
}

// readers returns how many nodes report a peer.
func (r *reports) readers(peer string, now time.Time) int {
	r.prunePeer(peer, now)
	return len(r.byPeer[peer])
}

func (r *reports) prune(now time.Time) {
	for peer := range r.byPeer {
		r.prunePeer(peer, now)
	}
}

func (r *reports) prunePeer(peer string, now time.Time) {
	for reader, at := range r.byPeer[peer] {
		if now.Sub(at) < reportLife {
			continue
		}
		delete(r.byPeer[peer], reader)
		if r.count[reader]--; r.count[reader] == 0 {
			delete(r.count, reader)
		}
	}
	if len(r.byPeer[peer]) == 0 {
		delete(r.byPeer, peer)
	}
}

// Reported returns how many nodes got wrong bytes from a node within the last minutes, as far as they said so to this
// replica. excluded: it is named to no node.
func (p *Peers) Reported(node string) (readers int, excluded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	readers = p.reports.readers(node, p.db.Now())
	return readers, readers >= minReaders
}

// noteExcluded records which peers sent wrong bytes to a node, and writes an event about each new one. Nodes from which
// the reader cannot read are ignored.
func (p *Peers) noteExcluded(ctx context.Context, reader *farm.Node, contentID string, excluded []string) {
	for _, id := range excluded {
		server, _, ok := p.db.Tables.Nodes.Get(id)
		if !ok || id == reader.ID || !shareGroup(reader, server) {
			continue
		}
		p.mu.Lock()
		isNew := p.reports.add(id, reader.ID, p.db.Now())
		readers := p.reports.readers(id, p.db.Now())
		p.mu.Unlock()
		if !isNew {
			continue
		}
		p.db.Log.WarnContext(ctx, "a node got wrong bytes of a version from a peer", "node_id", id, "reader_id",
			reader.ID, "content", contentID, "readers", readers)
		event := farm.NewNodeEvent(farm.EventPeerExcluded, server, map[string]any{
			"reader_id": reader.ID, "reader_name": reader.Name, "content_id": contentID, "readers": readers,
			"excluded": readers >= minReaders,
		})
		if err := p.opts.AppendEvents(ctx, event); err != nil {
			p.db.Log.WarnContext(ctx, "writing an event about a peer failed", "node_id", id, "error", err)
		}
	}
}
