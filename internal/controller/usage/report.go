package usage

import (
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// reportRange is a range of the API for usage.
type reportRange struct {
	name  string
	ring  int
	steps int64 // with the one that has begun
}

var reportRanges = []reportRange{{api.RangeDay, 0, 24}, {api.RangeWeek, 1, 28}}

// Report returns the usage by group, owner or template over a range of the API: of the keys that may be
// shown, those with the most usage first. show is nil when all may be shown; other, which sums up the
// rest, is only in a report of all.
func (u *Usage) Report(by, over string, show func(key string) bool) (api.UsageReport, error) {
	if !slices.Contains(dimensions, by) {
		return api.UsageReport{}, farm.Invalid("by", "must be %s, %s or %s", api.ByGroup, api.ByOwner, api.ByTemplate)
	}
	i := slices.IndexFunc(reportRanges, func(r reportRange) bool { return r.name == over })
	if i < 0 {
		return api.UsageReport{}, farm.Invalid("range", "must be %s or %s", api.RangeDay, api.RangeWeek)
	}
	rows, from, to := u.usageStats.over(by, reportRanges[i])
	out := api.UsageReport{By: by, Range: over, From: from, To: to, Rows: []api.UsageRow{}}
	if show != nil {
		delete(rows, usageKey{by: by, other: true})
		for k := range rows {
			if !show(k.key) {
				delete(rows, k)
			}
		}
	}
	shrinkRows(rows, by, keptUsageKeys)
	for _, k := range append(sortedKeys(rows, by), usageKey{by: by, other: true}) {
		if r := rows[k]; r != nil {
			out.Rows = append(out.Rows, u.rowToAPI(k, r))
		}
	}
	return out, nil
}

// over returns the sums of a dimension over a range.
func (t *usageStats) over(by string, o reportRange) (rows map[usageKey]*usageRow, from, to time.Time) {
	t.settle()
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.rings[o.ring]
	last := r.number(now)
	first := max(last-o.steps+1, 0)
	rows = map[usageKey]*usageRow{}
	for at := first; at <= last; at++ {
		s := r.steps[at]
		if s == nil {
			continue
		}
		for k, row := range s.rows {
			if k.by != by {
				continue
			}
			if rows[k] == nil {
				rows[k] = &usageRow{}
			}
			rows[k].add(row)
		}
	}
	return rows, time.Unix(first*int64(r.step/time.Second), 0).UTC(), now.Truncate(time.Second)
}

// rowToAPI returns a row in its form in the API.
func (u *Usage) rowToAPI(k usageKey, r *usageRow) api.UsageRow {
	out := api.UsageRow{
		Key: k.key, Name: r.name, Other: k.other, InstanceHours: math.Round(r.seconds/3.6) / 1000,
		Starts: r.starts, Failures: r.failures, QueueP95: r.queued.within(.95), StartP95: r.started.within(.95),
	}
	switch {
	case k.other:
		out.Key, out.Name = api.UsageOther, api.UsageOther
	case k.by == api.ByGroup:
		if g, _, ok := u.db.Tables.Groups.Get(k.key); ok {
			out.Name = g.Name
		}
	}
	return out
}
