package sched

import "time"

// QueuePosition is the place of a pending request among the requests that fit the same nodes.
type QueuePosition struct {
	Position int     // 1 is next
	Waiting  int     // requests that fit the same nodes, this one included
	Rate     float64 // placements per second of the node group in the last rateWindow; 0: none
}

// Position returns the place of a request, as an estimate: owners take turns, more urgent requests go first, and what
// follows or ages until then is not known. ok is false for a request that is not pending. Its cost grows with the
// requests that fit the same nodes.
func (x *Index) Position(requestID string, now time.Time) (at QueuePosition, ok bool) {
	r := x.requests[requestID]
	if r == nil || r.queue == nil {
		return QueuePosition{}, false
	}
	turns := 0 // of its owner, before this one
	for _, o := range r.queue.requests {
		if o.before(r) {
			turns++
		}
	}
	at = QueuePosition{Position: 1 + turns, Waiting: r.requestGroup().pendingCount}
	for _, q := range r.queue.fairQueue.queues {
		if q != r.queue {
			at.Position += q.turnsBefore(r, turns)
		}
	}
	at.Rate = x.rates.perSecond(r.GroupID, now)
	return at, true
}

// turnsBefore returns how many requests of a queue go before a request of another owner, who has some turns before it.
func (q *ownerQueue) turnsBefore(r *request, turns int) int {
	urgent, equal := 0, 0
	for _, o := range q.requests {
		switch {
		case o.Priority < r.Priority:
			urgent++
		case o.Priority == r.Priority:
			equal++
		}
	}
	if q.before(r.queue) {
		turns++
	}
	return urgent + min(equal, turns)
}

const (
	// rateWindow is the time over which placements are counted.
	rateWindow = 10 * time.Minute
	rateSlots  = 10
)

// placementRates counts the placements of each node group in the last rateWindow.
type placementRates map[string]*placementRate

// placementRate is a ring of counters, each for a part of the window.
type placementRate struct {
	slot   int64 // number of the newest counter since the epoch
	counts [rateSlots]int
}

func rateSlot(now time.Time) int64 { return now.UnixNano() / int64(rateWindow/rateSlots) }

// advance clears the counters of the time since the last call.
func (r *placementRate) advance(slot int64) {
	for ; r.slot < slot; r.slot++ {
		if slot-r.slot > rateSlots {
			r.slot = slot - rateSlots
		}
		r.counts[(r.slot+1)%rateSlots] = 0
	}
}

func (m placementRates) add(group string, now time.Time) {
	r := m[group]
	if r == nil {
		r = &placementRate{slot: rateSlot(now)}
		m[group] = r
	}
	r.advance(rateSlot(now))
	r.counts[r.slot%rateSlots]++
}

// perSecond returns the rate of a group; 0 when nothing was placed in the window.
func (m placementRates) perSecond(group string, now time.Time) float64 {
	r := m[group]
	if r == nil {
		return 0
	}
	r.advance(rateSlot(now))
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	if sum == 0 {
		delete(m, group)
	}
	return float64(sum) / rateWindow.Seconds()
}
