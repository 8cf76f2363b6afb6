package macpool

import (
	"math"

	"github.com/buildyard/buildyard/internal/farm"
)

// Query selects managed addresses in their order.
type Query struct {
	InUse *bool    // only those in use, or only the free ones; nil: all
	After farm.MAC // those that follow it
	Limit int
}

// List returns the addresses of the list and those that are in use but no longer in it.
func (p *Pool) List(q Query) ([]farm.MACAddress, error) {
	if p == nil {
		return nil, errUnmanaged
	}
	free := p.freeAfter(q.After)
	if q.InUse != nil && *q.InUse {
		free = func() (farm.MAC, bool) { return 0, false }
	}
	list := make([]farm.MACAddress, 0, min(q.Limit, pageMACs))
	next, more := free()
	for _, used := range p.db.Tables.MACs.Range(q.After.String(), math.MaxInt) {
		for ; more && next.String() < used.Address && len(list) < q.Limit; next, more = free() {
			list = append(list, farm.MACAddress{Address: next.String()})
		}
		if len(list) == q.Limit {
			return list, nil
		}
		if q.InUse == nil || *q.InUse {
			list = append(list, *used)
		}
	}
	for ; more && len(list) < q.Limit; next, more = free() {
		list = append(list, farm.MACAddress{Address: next.String()})
	}
	return list, nil
}

// pageMACs bounds the capacity that is allocated in advance for a list of addresses.
const pageMACs = 1000

// freeAfter returns a function that returns the free addresses of the list after one, one per call.
func (p *Pool) freeAfter(after farm.MAC) func() (farm.MAC, bool) {
	list := p.list()
	at := max(list.From, after+1)
	return func() (farm.MAC, bool) {
		for ; list.Contains(at); at++ {
			if _, _, used := p.db.Tables.MACs.Get(at.String()); !used {
				at++
				return at - 1, true
			}
		}
		return 0, false
	}
}

// Count returns how many addresses there are, in use or not; nil: both.
func (p *Pool) Count(inUse *bool) (int, error) {
	if p == nil {
		return 0, errUnmanaged
	}
	used := p.db.Tables.MACs.Len()
	if inUse != nil && *inUse {
		return used, nil
	}
	list, inside := p.list(), 0
	for id := range p.db.Tables.MACs.All() {
		if a, err := farm.ParseMAC(id); err == nil && list.Contains(a) {
			inside++
		}
	}
	free := list.Count() - inside
	if inUse != nil {
		return free, nil
	}
	return free + used, nil
}
