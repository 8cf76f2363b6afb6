package peers

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	// maxComplete and maxPulling bound the peers of one response.
	maxComplete = 4
	maxPulling  = 24
	// pullLife is how long a node counts as pulling after its last request, which it repeats every 30 s.
	pullLife = 75 * time.Second
	// useLife is how long a node that was handed out counts as used by the reader.
	useLife = time.Minute
	// maxPulls bounds the pulls that are known, of all nodes.
	maxPulls = 100_000
)

// Options configure Peers. All fields are set.
type Options struct {
	// MayPull reports by an error that a node has no order to cache a version.
	MayPull func(ctx context.Context, node *farm.Node, contentID string) error
	// Sign is cloudkey.Key.SignPeerToken of the cloud.
	Sign func(p cloudkey.PeerPermit, until time.Time) string
	// AppendEvents writes events to the log.
	AppendEvents func(ctx context.Context, events ...farm.Event) error
}

// Peers knows which nodes pull which version. It may be used from many goroutines.
type Peers struct {
	db   record.DB
	opts Options

	mu      sync.Mutex                      // guards the fields below
	pulls   map[string]map[string]time.Time // content ID -> node ID -> its last request
	count   int                             // of all pulls
	used    map[string]use                  // node ID -> how much it was handed out
	reports reports
}

// use is how often a node was handed out in the current and the previous useLife.
type use struct {
	began     time.Time
	now, past int
}

// New returns Peers that know of no pull.
func New(db record.DB, o Options) *Peers {
	return &Peers{db: db, opts: o, pulls: map[string]map[string]time.Time{}, used: map[string]use{}}
}

// For returns the nodes from which a node may read a version, of its groups only: those that have all of it, the least
// used first, and those that pull it. excluded are IDs of nodes that sent it wrong bytes; those that two nodes report
// are named to none for some minutes.
func (p *Peers) For(
	ctx context.Context, node *farm.Node, contentID string, excluded []string,
) (api.PeersResponse, error) {
	if err := p.opts.MayPull(ctx, node, contentID); err != nil {
		return api.PeersResponse{}, err
	}
	response := api.PeersResponse{Peers: []api.Peer{}}
	own, _, _ := p.db.Tables.Infos.Get(node.ID)
	if own == nil || own.PeerKey == "" {
		return response, nil // its key would be part of the token
	}
	now := p.db.Now()
	p.noteExcluded(ctx, node, contentID, excluded)
	add := func(info *farm.NodeInfo, pulling bool) bool {
		peer, ok := p.peer(node, own, info, contentID)
		if _, lies := p.Reported(info.NodeID); !ok || lies || slices.Contains(excluded, info.NodeID) {
			return false
		}
		peer.Pulling = pulling
		response.Peers = append(response.Peers, peer)
		return true
	}
	complete := map[string]bool{}
	var infos []*farm.NodeInfo
	for _, info := range p.db.Tables.Infos.Where(record.ByPeerContent, contentID) {
		complete[info.NodeID] = true
		infos = append(infos, info)
	}
	p.sortByUse(infos, now)
	for _, info := range infos {
		if add(info, false) {
			p.noteUse(info.NodeID, now)
		}
		if len(response.Peers) == maxComplete {
			break
		}
	}
	most := len(response.Peers) + maxPulling
	for _, id := range p.notePull(node.ID, contentID, now) {
		info, _, _ := p.db.Tables.Infos.Get(id)
		if info != nil && !complete[id] {
			add(info, true)
		}
		if len(response.Peers) == most {
			break
		}
	}
	return response, nil
}

// peer describes a node to a reader; false: it must not, or cannot, read from it.
func (p *Peers) peer(reader *farm.Node, own, info *farm.NodeInfo, contentID string) (peer api.Peer, ok bool) {
	server, _, ok := p.db.Tables.Nodes.Get(info.NodeID)
	if !ok || server.ID == reader.ID || server.State != farm.NodeActive || !shareGroup(reader, server) {
		return peer, false
	}
	host, port, err := net.SplitHostPort(info.PeerAddress)
	if err != nil || info.PeerKey == "" {
		return peer, false
	}
	permit := cloudkey.PeerPermit{ContentID: contentID, Reader: own.PeerKey, Server: info.PeerKey}
	return api.Peer{
		NodeID: server.ID, Address: net.JoinHostPort(cmp.Or(host, server.Host), port), Key: info.PeerKey,
		Token: p.opts.Sign(permit, p.db.Now().Add(cloudkey.PeerTokenLife)),
	}, true
}

// shareGroup reports whether two nodes have a group in common, or both none.
func shareGroup(a, b *farm.Node) bool {
	if len(a.Groups) == 0 {
		return len(b.Groups) == 0
	}
	return slices.ContainsFunc(a.Groups, func(id string) bool { return slices.Contains(b.Groups, id) })
}

// notePull records that a node pulls a version, and returns the other nodes that do so, in random order.
func (p *Peers) notePull(node, contentID string, now time.Time) (others []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count >= maxPulls {
		p.pruneLocked(now)
	}
	nodes := p.pulls[contentID]
	if nodes == nil {
		nodes = map[string]time.Time{}
		p.pulls[contentID] = nodes
	}
	for id, at := range nodes {
		switch {
		case now.Sub(at) > pullLife:
			delete(nodes, id)
			p.count--
		case id != node:
			others = append(others, id)
		}
	}
	if _, known := nodes[node]; !known && p.count < maxPulls {
		nodes[node] = now
		p.count++
	} else if known {
		nodes[node] = now
	}
	rand.Shuffle(len(others), func(i, j int) { //nolint:gosec // not a secret: it spreads readers
		others[i], others[j] = others[j], others[i]
	})
	return others
}

// pruneLocked drops the pulls that have ended.
func (p *Peers) pruneLocked(now time.Time) {
	p.count = 0
	for content, nodes := range p.pulls {
		for id, at := range nodes {
			if now.Sub(at) > pullLife {
				delete(nodes, id)
			}
		}
		if p.count += len(nodes); len(nodes) == 0 {
			delete(p.pulls, content)
		}
	}
}

// sortByUse sorts nodes, those that were handed out least first, and equal ones in random order.
func (p *Peers) sortByUse(infos []*farm.NodeInfo, now time.Time) {
	rand.Shuffle(len(infos), func(i, j int) { //nolint:gosec // not a secret: it spreads readers
		infos[i], infos[j] = infos[j], infos[i]
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(infos, func(a, b *farm.NodeInfo) int {
		return cmp.Compare(p.used[a.NodeID].at(now).sum(), p.used[b.NodeID].at(now).sum())
	})
}

// noteUse records that a node was handed out.
func (p *Peers) noteUse(node string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.used[node].at(now)
	u.now++
	p.used[node] = u
}

// at returns the use as of a later time.
func (u use) at(now time.Time) use {
	switch age := now.Sub(u.began); {
	case age >= 2*useLife || age < 0:
		return use{began: now}
	case age >= useLife:
		return use{began: u.began.Add(useLife), past: u.now}
	}
	return u
}

func (u use) sum() int { return u.now + u.past }
