package controller

import (
	"math"

	"github.com/buildyard/buildyard/internal/farm"
)

// MACQuery selects managed addresses in their order.
type MACQuery struct {
	InUse *bool    // only those in use, or only the free ones; nil: all
	After farm.MAC // those that follow it
	Limit int
}

// MACs returns the addresses of the list and those that are in use but no longer in it.
func (c *Controller) MACs(q MACQuery) ([]farm.MACAddress, error) {
	if c.macs == nil {
		return nil, errNoMACs
	}
	free := c.freeAfter(q.After)
	if q.InUse != nil && *q.InUse {
		free = func() (farm.MAC, bool) { return 0, false }
	}
	list := make([]farm.MACAddress, 0, min(q.Limit, pageMACs))
	next, more := free()
	for _, used := range c.tables.MACs.Range(q.After.String(), math.MaxInt) {
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
func (c *Controller) freeAfter(after farm.MAC) func() (farm.MAC, bool) {
	list := c.macs.list()
	at := max(list.From, after+1)
	return func() (farm.MAC, bool) {
		for ; list.Has(at); at++ {
			if _, _, used := c.tables.MACs.Get(at.String()); !used {
				at++
				return at - 1, true
			}
		}
		return 0, false
	}
}

// CountMACs returns how many addresses there are, in use or not; nil: both.
func (c *Controller) CountMACs(inUse *bool) (int, error) {
	if c.macs == nil {
		return 0, errNoMACs
	}
	used := c.tables.MACs.Len()
	if inUse != nil && *inUse {
		return used, nil
	}
	list, inside := c.macs.list(), 0
	for id := range c.tables.MACs.All() {
		if a, err := farm.ParseMAC(id); err == nil && list.Has(a) {
			inside++
		}
	}
	free := list.Len() - inside
	if inUse != nil {
		return free, nil
	}
	return free + used, nil
}
