package usage

import (
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
)

// point holds the measurements of one step, of the cloud, a group or a node. There are up to a
// million of them: it is kept small.
type point struct {
	at      uint32 // number of the step since 1970
	samples uint16
	loads   uint16 // samples with the load of the host
	cpu     uint16 // sum over these, in hundredths
	ram     uint16 // the same

	leastActive uint16 // nodes, the fewest in a sample, plus 1; 0: nodes were not counted
	mostOffline uint16

	// Sums over the samples.
	running, queue, slots, capacity, active, offline uint32

	peak     uint32 // of the queue
	failures uint32
	pulled   int64
	starts   *classTimes // nil: none
}

// measurement is what one sample measures.
type measurement struct {
	running, queue, slots, capacity, active, offline int

	cpu, ram float64 // of the host, 0 to 1
	hasLoad  bool
}

// include adds another measurement to this one, as of a group of nodes.
func (m *measurement) include(o measurement) {
	m.running += o.running
	m.slots += o.slots
	m.capacity += o.capacity
	m.active += o.active
	m.offline += o.offline
}

// sample adds a measurement.
func (p *point) sample(m measurement) {
	q := point{
		samples: 1, running: number(m.running), queue: number(m.queue), slots: number(m.slots),
		capacity: number(m.capacity), active: number(m.active), offline: number(m.offline), peak: number(m.queue),
		leastActive: small(m.active + 1), mostOffline: small(m.offline),
	}
	if m.hasLoad {
		q.loads, q.cpu, q.ram = 1, hundredths(m.cpu), hundredths(m.ram)
	}
	p.add(&q)
}

// number bounds a count, so that a sum over all samples of a step fits.
func number(n int) uint32 { return uint32(min(max(n, 0), 1<<23)) }

// small bounds a count to the range of its field.
func small(n int) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

func hundredths(share float64) uint16 {
	if math.IsNaN(share) {
		return 0
	}
	return uint16(math.Round(min(max(share, 0), 1) * 100))
}

// add adds another point to the sums.
func (p *point) add(q *point) {
	p.samples = small(int(p.samples) + int(q.samples))
	p.loads = small(int(p.loads) + int(q.loads))
	p.cpu = small(int(p.cpu) + int(q.cpu))
	p.ram = small(int(p.ram) + int(q.ram))
	if q.leastActive > 0 && (p.leastActive == 0 || q.leastActive < p.leastActive) {
		p.leastActive = q.leastActive
	}
	p.mostOffline = max(p.mostOffline, q.mostOffline)
	p.running += q.running
	p.queue += q.queue
	p.slots += q.slots
	p.capacity += q.capacity
	p.active += q.active
	p.offline += q.offline
	p.peak = max(p.peak, q.peak)
	p.failures += q.failures
	p.pulled += q.pulled
	if q.starts != nil {
		p.times().merge(*q.starts)
	}
}

// times returns the start times, to add to them.
func (p *point) times() *classTimes {
	if p.starts == nil {
		p.starts = new(classTimes)
	}
	return p.starts
}

// start counts a started VM.
func (p *point) start(class int) { p.times().add(class, 1) }

// started returns how many VMs started.
func (p *point) started() int {
	if p.starts == nil {
		return 0
	}
	return p.starts.count()
}

// within returns the time in which a share of the VMs started; nil where none did.
func (p *point) within(share float64) *float64 {
	if p.starts == nil {
		return nil
	}
	return p.starts.within(share)
}

// busy reports whether a point justifies a separate write: others are recorded with later ones.
func (p *point) busy() bool {
	return p.running > 0 || p.queue > 0 || p.pulled > 0 || p.failures > 0 || p.offline > 0 || p.starts != nil
}

// isUsed reports whether anything was measured or counted.
func (p *point) isUsed() bool { return p.samples > 0 || p.busy() }

// toAPI returns a point in its form in the API.
func (p *point) toAPI(step time.Duration) api.SeriesPoint {
	out := api.SeriesPoint{
		Time: time.Unix(int64(p.at)*int64(step/time.Second), 0).UTC(), Samples: int(p.samples),
		QueuePeak: int(p.peak), Pulled: p.pulled, Failures: int(p.failures),
		Starts: p.started(), StartP50: p.within(.5), StartP95: p.within(.95),
		Running: p.mean(p.running), Queue: p.mean(p.queue),
	}
	if p.leastActive > 0 {
		least, most := int(p.leastActive)-1, int(p.mostOffline)
		out.ActiveNodesMin, out.OfflineNodesMax = &least, &most
		out.ActiveNodes, out.OfflineNodes = p.nodeMean(p.active), p.nodeMean(p.offline)
		out.SlotsUsed, out.Capacity = p.nodeMean(p.slots), p.nodeMean(p.capacity)
	}
	out.CPUUtil, out.RAMUtil = p.load(p.cpu), p.load(p.ram)
	return out
}

// mean returns the mean of a sum over the samples, with two decimal places.
func (p *point) mean(sum uint32) float64 {
	if p.samples == 0 {
		return 0
	}
	return math.Round(100*float64(sum)/float64(p.samples)) / 100
}

// nodeMean returns the mean of a sum that only samples with nodes have; nil without those.
func (p *point) nodeMean(sum uint32) *float64 {
	if p.leastActive == 0 {
		return nil
	}
	mean := p.mean(sum)
	return &mean
}

// load returns the mean load of a host, 0 to 1; nil when none was reported.
func (p *point) load(sum uint16) *float64 {
	if p.loads == 0 {
		return nil
	}
	mean := math.Round(float64(sum)/float64(p.loads)) / 100
	return &mean
}

// toRecord returns a point in its stored form.
func (p *point) toRecord() record.SeriesStep {
	f := record.SeriesStep{
		At: int64(p.at), Samples: int(p.samples), Running: int(p.running), Queue: int(p.queue), Peak: int(p.peak),
		Pulled: p.pulled, Failures: int(p.failures), Slots: int(p.slots), Capacity: int(p.capacity),
		Active: int(p.active), Offline: int(p.offline),
		LeastActive: int(p.leastActive), MostOffline: int(p.mostOffline),
	}
	if p.starts != nil {
		f.Starts = p.starts.pairs()
	}
	return f
}

// pointOf returns the point of a recorded step.
func pointOf(f *record.SeriesStep) point {
	p := point{
		at: sum(int(f.At)), samples: small(f.Samples), running: sum(f.Running), queue: sum(f.Queue),
		peak: sum(f.Peak), pulled: max(f.Pulled, 0), failures: sum(f.Failures), slots: sum(f.Slots),
		capacity: sum(f.Capacity), active: sum(f.Active), offline: sum(f.Offline),
		leastActive: small(f.LeastActive), mostOffline: small(f.MostOffline),
	}
	if times := timesOf(f.Starts); times != nil {
		p.starts = &times
	}
	return p
}

// sum bounds a recorded sum to the range of its field.
func sum(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
