package usage

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/api"
)

// NodeSparklines returns the utilization of some nodes over a range of the API, in their order. Nodes that do
// not exist are left out.
func (u *Usage) NodeSparklines(over string, ids []string) (api.Series, error) {
	list := []api.Sparkline{}
	for _, id := range ids {
		if n, _, ok := u.db.Tables.Nodes.Get(id); ok {
			list = append(list, api.Sparkline{ID: id, Name: n.Name})
		}
	}
	return u.series.sparklines(over, api.ByNode, list)
}

// FailedInstances returns how many instances went to Error on each node in the last hour, for those with any.
func (u *Usage) FailedInstances() map[string]int {
	hour, now, failed := seriesRanges[0], u.db.Now(), map[string]int{}
	u.series.mu.Lock()
	defer u.series.mu.Unlock()
	for id, t := range u.series.nodes {
		t.over(hour, now, func(_ int, p *point) {
			if p.failures > 0 {
				failed[id] += int(p.failures)
			}
		})
	}
	return failed
}

// PendingByGroup returns how many instances that request a group wait for a node, for groups with any.
func (u *Usage) PendingByGroup() map[string]int {
	_, waiting := u.counters.parts()
	return waiting
}

// GroupSparklines returns the utilization of the groups over a range of the API, by their names: of the first
// api.MaxSparklines.
func (u *Usage) GroupSparklines(over string) (api.Series, error) {
	list := []api.Sparkline{}
	for id, g := range u.db.Tables.Groups.All() {
		list = append(list, api.Sparkline{ID: id, Name: g.Name})
	}
	slices.SortFunc(list, func(a, b api.Sparkline) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return u.series.sparklines(over, api.ByGroup, list[:min(len(list), api.MaxSparklines)])
}

// sparklines adds the numbers to sparklines that have an id and a name.
func (s *series) sparklines(over, by string, list []api.Sparkline) (api.Series, error) {
	o, err := rangeOf(over)
	if err != nil {
		return api.Series{}, err
	}
	now := s.db.Now()
	out := newAPISeries(o, now)
	out.By, out.Series = by, list
	first, last := o.bounds(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		of := s.groups
		if by == api.ByNode {
			of = s.nodes
		}
		newLists(&list[i], by, int(last-first+1))
		of[list[i].ID].over(o, now, func(index int, p *point) { setSparkline(&list[i], index, p.toAPI(o.step)) })
	}
	return out, nil
}

// newLists makes the lists of a sparkline.
func newLists(l *api.Sparkline, by string, length int) {
	lists := []*[]*float64{&l.Running, &l.SlotsUsed, &l.Capacity, &l.ActiveNodes, &l.Starts, &l.Failures}
	if by == api.ByNode {
		lists = append(lists, &l.CPUUtil, &l.RAMUtil)
	} else {
		lists = append(lists, &l.Queue)
	}
	for _, list := range lists {
		*list = make([]*float64, length)
	}
}

// setSparkline sets the numbers of one step.
func setSparkline(l *api.Sparkline, index int, p api.SeriesPoint) {
	starts, failures := float64(p.Starts), float64(p.Failures)
	if p.Samples > 0 {
		l.Running[index] = &p.Running
	}
	l.SlotsUsed[index], l.Capacity[index] = p.SlotsUsed, p.Capacity
	l.ActiveNodes[index], l.Starts[index], l.Failures[index] = p.ActiveNodes, &starts, &failures
	if l.Queue != nil {
		l.Queue[index] = &p.Queue
	}
	if l.CPUUtil != nil {
		l.CPUUtil[index], l.RAMUtil[index] = p.CPUUtil, p.RAMUtil
	}
}
