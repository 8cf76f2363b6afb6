package nodelink

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// LastContact returns when a node was last in contact with any replica.
func (l *Link) LastContact(node string) time.Time {
	_, here := l.Sessions.usage(node)
	return latest(here, l.Peers.LastContact(node))
}

// Usage returns the load that a node last reported, and when it was last in contact. The load is that
// of its last report to this replica, or to another one, whose digest brings it within
// MaxDigestInterval and lacks the disk; it is zero when the node is not in contact. A node that is not Offline has been
// in contact with some replica lately.
func (l *Link) Usage(node *farm.Node) (load api.Usage, contact time.Time) {
	now := l.db.Now()
	reported, contact := l.Sessions.usage(node.ID)
	if other, ok := l.Peers.LaterReport(node.ID, contact); ok {
		reported = api.Usage{CPU: other.CPU, RAM: other.RAM}
		contact = other.LastContact
	}
	if now.Sub(contact) <= ContactGap {
		return api.Usage{
			CPU: reported.CPU, RAM: reported.RAM, HasDisk: reported.HasDisk, FreeDisk: reported.FreeDisk,
			CacheUsage: reported.CacheUsage, PeerServed: reported.PeerServed, PeerFetched: reported.PeerFetched,
		}, contact
	}
	contact = latest(contact, l.Peers.LastContact(node.ID))
	if node.State == farm.NodeOffline { // it had been silent for so long when it became that
		return load, latest(contact, node.StateSince.Add(-l.opts.NodeTimeout))
	}
	return load, latest(contact, node.StateSince, now.Add(-l.opts.NodeTimeout))
}

// DiskFill returns how much of an instance's disks is on its node; nil when that is all, and when its node does not
// report it to this replica.
func (l *Link) DiskFill(node, instance string) *api.DiskFill {
	s := l.Sessions.find(node)
	if s == nil || !l.Sessions.HasContact(node) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.fills[instance]; ok {
		return &f
	}
	return nil
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}
