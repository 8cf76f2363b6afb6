package usage

import (
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// ring has the newest points of one step length.
type ring struct {
	step   time.Duration
	size   int64    // points at most
	batch  int64    // points in one record
	chunks []*chunk // each is allocated with the first of its points
}

// chunk has consecutive points. It is small: thousands of nodes have four at least.
type chunk [chunkPoints]point

const chunkPoints = 8

// timeline is the utilization of one subject over time, in rings of rising step lengths.
type timeline []ring

// newCloudTimeline returns a timeline whose rings serve several ranges.
func newCloudTimeline() timeline {
	return timeline{
		{step: time.Minute, size: 6*60 + 3, batch: 60},
		{step: 10 * time.Minute, size: 7*24*6 + 6, batch: 72},
	}
}

// newPartTimeline returns the timeline of a node or a group: one ring for each range of the API, in
// the steps of that range, because there are many of them.
func newPartTimeline() timeline {
	return timeline{
		{step: time.Minute, size: 60 + 3, batch: 10},
		{step: 3 * time.Minute, size: 120 + 3, batch: 10},
		{step: 10 * time.Minute, size: 144 + 3, batch: 6},
		{step: time.Hour, size: 168 + 3, batch: 6},
	}
}

// number returns the number of a ring's step.
func (r *ring) number(t time.Time) int64 {
	return min(max(t.Unix(), 0), math.MaxUint32) / int64(r.step/time.Second)
}

// slot returns the place of a step; nil where nothing was allocated.
func (r *ring) slot(at int64) *point {
	i := at % r.size
	if r.chunks == nil || r.chunks[i/chunkPoints] == nil {
		return nil
	}
	return &r.chunks[i/chunkPoints][i%chunkPoints]
}

// put returns the point of a step, which is empty when another one had its place.
func (r *ring) put(at int64) *point {
	if r.chunks == nil {
		r.chunks = make([]*chunk, (r.size+chunkPoints-1)/chunkPoints)
	}
	if c := &r.chunks[at%r.size/chunkPoints]; *c == nil {
		*c = new(chunk)
	}
	p := r.slot(at)
	if int64(p.at) != at {
		*p = point{at: uint32(at)}
	}
	return p
}

// seek returns the point of a step; nil when nothing was measured or counted in it.
func (r *ring) seek(at int64) *point {
	if at < 0 {
		return nil
	}
	if p := r.slot(at); p != nil && int64(p.at) == at && p.isUsed() {
		return p
	}
	return nil
}

// each applies do to the points of the current steps.
func (t timeline) each(now time.Time, do func(*point)) {
	for i := range t {
		do(t[i].put(t[i].number(now)))
	}
}

// take takes over the points of a record that have more samples than the own ones.
func (t timeline) take(step int64, points []record.SeriesStep, now time.Time) {
	for i := range t {
		r := &t[i]
		if step != int64(r.step/time.Second) {
			continue
		}
		last := r.number(now)
		for j := range points {
			p := &points[j]
			if p.At < 0 || p.At > last || p.At <= last-r.size {
				continue
			}
			if own := r.seek(p.At); own == nil || int(own.samples) < p.Samples {
				*r.put(p.At) = pointOf(p)
			}
		}
	}
}

// busySince reports whether there was any activity.
func (t timeline) busySince(since time.Time) bool {
	return slices.ContainsFunc(t, func(r ring) bool {
		first := r.number(since)
		return slices.ContainsFunc(r.chunks, func(c *chunk) bool {
			return c != nil && slices.ContainsFunc(c[:], func(p point) bool { return int64(p.at) >= first && p.busy() })
		})
	})
}

// recorded returns the points of one record.
func (r *ring) recorded(batch int64) (list []record.SeriesStep) {
	for at := batch * r.batch; at < (batch+1)*r.batch; at++ {
		if p := r.seek(at); p != nil {
			list = append(list, p.toRecord())
		}
	}
	return list
}

// seriesRange is a range of the API.
type seriesRange struct {
	name  string
	step  time.Duration // of its points
	steps int64
}

var seriesRanges = []seriesRange{
	{api.RangeHour, time.Minute, 60},
	{api.RangeQuarter, 3 * time.Minute, 120},
	{api.RangeDay, 10 * time.Minute, 144},
	{api.RangeWeek, time.Hour, 168},
}

// rangeOf returns a range of the API by its name.
func rangeOf(name string) (seriesRange, error) {
	i := slices.IndexFunc(seriesRanges, func(s seriesRange) bool { return s.name == name })
	if i < 0 {
		return seriesRange{}, farm.Invalid("range", "must be %s, %s, %s or %s", api.RangeHour, api.RangeQuarter,
			api.RangeDay, api.RangeWeek)
	}
	return seriesRanges[i], nil
}

// bounds returns the numbers of the first step of a range and of the current one.
func (o seriesRange) bounds(now time.Time) (first, last int64) {
	r := ring{step: o.step}
	last = r.number(now)
	return max(last-o.steps+1, 0), last
}

// start returns when a step begins.
func (o seriesRange) start(at int64) time.Time {
	return time.Unix(at*int64(o.step/time.Second), 0).UTC()
}

// ringFor returns the ring of the shortest steps that covers a range.
func (t timeline) ringFor(o seriesRange) *ring {
	for i := range t {
		if r := &t[i]; o.step%r.step == 0 && time.Duration(r.size)*r.step >= time.Duration(o.steps)*o.step {
			return r
		}
	}
	return nil
}

// over calls do with each step of a range that has samples or counts, the oldest first. index is the number of the
// step in the range.
func (t timeline) over(o seriesRange, now time.Time, do func(index int, p *point)) {
	r := t.ringFor(o)
	if r == nil {
		return
	}
	merge := int64(o.step / r.step)
	first, last := o.bounds(now)
	for at := first; at <= last; at++ {
		sum := point{at: uint32(at)}
		for n := at * merge; n < (at+1)*merge; n++ {
			if p := r.seek(n); p != nil {
				sum.add(p)
			}
		}
		if sum.isUsed() {
			do(int(at-first), &sum)
		}
	}
}
