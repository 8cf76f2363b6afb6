package nodelink

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/sched"
)

// The bounds of a digest, so that it fits a transaction.
const (
	ageUnit          = 100 * time.Millisecond
	nodeBytes        = 18
	pullBytes        = 3
	maxDigestNodes   = 30000 // nodes
	maxDigestPulls   = 10000
	maxDigestOrphans = 1000 // nodes, and addresses
)

// loadOf returns the resources that orphaned VMs use.
func loadOf(s *record.OrphanReport) sched.Load {
	if s == nil {
		return sched.Load{}
	}
	return sched.Load{VMs: s.VMs, VCPU: s.VCPU, MemoryMB: s.MemoryMB}
}

// PeerReport is what another replica has reported about a node.
type PeerReport struct {
	LastContact time.Time // by this process's clock
	CPU, RAM    float64

	pulled  int64                // bytes that the node has reported to that replica; 0: not known
	pulls   map[string]float64   // cache job id -> progress
	orphans *record.OrphanReport // nil: it has no orphaned VM
}

// digest returns the digest of the nodes in contact with this replica within their timeout.
func (p *Peers) digest(no int64) *record.Digest {
	now := p.db.Now()
	d := &record.Digest{No: no, Keeps: p.opts.IsLeader(), Pulled: p.opts.Pulls.TotalPulled()}
	room := maxDigestPulls
	for _, s := range p.sessions.all() {
		id, err := uuid.Parse(s.node)
		seen, usage, pulls, pulled := s.report(now)
		age := now.Sub(seen)
		if err != nil || seen.IsZero() || age > p.opts.NodeTimeout || len(d.Nodes) == maxDigestNodes*nodeBytes {
			continue
		}
		at := len(d.Nodes) / nodeBytes
		d.Nodes = binary.BigEndian.AppendUint16(append(d.Nodes, id[:]...), uint16(min(age/ageUnit, math.MaxUint16)))
		d.Loads = append(d.Loads, hundredths(usage.CPU), hundredths(usage.RAM))
		d.NodesPulled = binary.AppendVarint(d.NodesPulled, pulled)
		for cacheJob, progress := range pulls {
			if room--; room >= 0 {
				addPull(d, cacheJob, at, progress)
			}
		}
		addOrphans(d, s.orphanReport(now), at)
	}
	return d
}

// addPull adds the progress of a node with a cache job.
func addPull(d *record.Digest, cacheJob string, at int, progress float64) {
	if d.Pulls == nil {
		d.Pulls = map[string][]byte{}
	}
	d.Pulls[cacheJob] = append(binary.BigEndian.AppendUint16(d.Pulls[cacheJob], uint16(at)), hundredths(progress))
}

// addOrphans adds the orphaned VMs of a node, as far as the bounds allow.
func addOrphans(d *record.Digest, s *record.OrphanReport, at int) {
	if s == nil {
		return
	}
	macs := len(s.MACs)
	for _, other := range d.Orphans {
		macs += len(other.MACs)
	}
	if len(d.Orphans) == maxDigestOrphans || macs > maxDigestOrphans {
		d.Vague = true
		return
	}
	s.At = at
	d.Orphans = append(d.Orphans, *s)
}

func hundredths(share float64) byte { return byte(math.Round(min(max(share, 0), 1) * 100)) }

// readDigest returns the content of a digest that arrived now. Values that no replica writes are left
// out.
func readDigest(d *record.Digest, now time.Time) map[string]PeerReport {
	nodes := make(map[string]PeerReport, len(d.Nodes)/nodeBytes)
	ids, pulled := make([]string, 0, len(d.Nodes)/nodeBytes), d.NodesPulled
	for b := d.Nodes; len(b) >= nodeBytes; b = b[nodeBytes:] {
		at, id := len(ids), uuid.UUID(b[:16]).String()
		ids = append(ids, id)
		t := PeerReport{LastContact: now.Add(-time.Duration(binary.BigEndian.Uint16(b[16:])) * ageUnit)}
		if 2*at+1 < len(d.Loads) {
			t.CPU, t.RAM = float64(d.Loads[2*at])/100, float64(d.Loads[2*at+1])/100
		}
		if bytes, n := binary.Varint(pulled); n > 0 {
			t.pulled, pulled = bytes, pulled[n:]
		}
		nodes[id] = t
	}
	for cacheJob, list := range d.Pulls {
		for ; len(list) >= pullBytes; list = list[pullBytes:] {
			if at := int(binary.BigEndian.Uint16(list)); at < len(ids) {
				t := nodes[ids[at]]
				if t.pulls == nil {
					t.pulls = map[string]float64{}
				}
				t.pulls[cacheJob] = min(float64(list[2])/100, 1)
				nodes[ids[at]] = t
			}
		}
	}
	for i := range d.Orphans {
		if s := &d.Orphans[i]; s.At >= 0 && s.At < len(ids) {
			t := nodes[ids[s.At]]
			t.orphans = s
			nodes[ids[s.At]] = t
		}
	}
	return nodes
}

// report returns what a node has reported to this replica, and when it was last in contact.
func (s *session) report(now time.Time) (seen time.Time, usage api.Usage, pulls map[string]float64, pulled int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.cacheJobs {
		if d.kind != api.CacheJobPull || d.progress <= 0 {
			continue
		}
		if pulls == nil {
			pulls = map[string]float64{}
		}
		pulls[id] = d.progress
	}
	return s.lastContactLocked(now), s.usage, pulls, s.pulled
}

// orphanReport returns the orphaned VMs of a node; nil when there are none.
func (s *session) orphanReport(now time.Time) *record.OrphanReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.inventoryAt.IsZero() && len(s.orphans) == 0 {
		return nil
	}
	load := s.orphanLoadLocked()
	out := &record.OrphanReport{VMs: load.VMs, VCPU: load.VCPU, MemoryMB: load.MemoryMB, Vague: s.inventoryAt.IsZero()}
	for _, u := range s.orphans {
		out.Vague = out.Vague || u.unidentified(now)
		if a, ok := u.mac(); ok {
			out.MACs = append(out.MACs, a)
		}
	}
	return out
}
