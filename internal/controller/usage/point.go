package usage

import (
	"fmt"
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
)

// Classes of start times: each is so much wider than the previous one that the reported value of a
// class, its middle, is at most 6 % from any time in it.
const (
	startClasses = 128
	firstClass   = .01  // seconds, upper end of the first
	classGrowth  = 1.11 // from the upper end of one to that of the next; the last is at 1.6 h
)

// classOf returns the class of a start time.
func classOf(d time.Duration) int {
	s := d.Seconds()
	if s <= firstClass {
		return 0
	}
	return min(int(math.Ceil(math.Log(s/firstClass)/math.Log(classGrowth))), startClasses-1)
}

// middle returns the reported value of a class, in seconds.
func middle(class int) float64 {
	s := firstClass * math.Pow(classGrowth, float64(class)-.5)
	digits := math.Pow(10, 2-math.Floor(math.Log10(s))) // three of them
	return math.Round(s*digits) / digits
}

// point holds the measurements of one step.
type point struct {
	at      int64 // number of the step since 1970
	samples int
	running int // sum over the samples
	queue   int // the same
	peak    int
	pulled  int64
	starts  *[startClasses]uint32 // nil: none
}

// add adds another point to the sums.
func (p *point) add(q *point) {
	p.samples += q.samples
	p.running += q.running
	p.queue += q.queue
	p.peak = max(p.peak, q.peak)
	p.pulled += q.pulled
	if q.starts == nil {
		return
	}
	if p.starts == nil {
		p.starts = new([startClasses]uint32)
	}
	for i, n := range q.starts {
		p.starts[i] += n
	}
}

// start counts a started VM.
func (p *point) start(class int) {
	if p.starts == nil {
		p.starts = new([startClasses]uint32)
	}
	p.starts[class]++
}

// started returns how many VMs started.
func (p *point) started() (n int) {
	if p.starts == nil {
		return 0
	}
	for _, k := range p.starts {
		n += int(k)
	}
	return n
}

// within returns the time in which a share of the VMs started; nil where none did.
func (p *point) within(share float64) *float64 {
	rest := math.Ceil(share * float64(p.started()))
	if rest == 0 {
		return nil
	}
	class := 0
	for i, n := range p.starts {
		if rest -= float64(n); rest <= 0 {
			class = i
			break
		}
	}
	seconds := middle(class)
	return &seconds
}

// toAPI returns a point in its form in the API.
func (p *point) toAPI(step time.Duration) api.SeriesPoint {
	out := api.SeriesPoint{
		Time: time.Unix(p.at*int64(step/time.Second), 0).UTC(), QueuePeak: p.peak, Pulled: p.pulled,
		Starts: p.started(), StartP50: p.within(.5), StartP95: p.within(.95),
	}
	if p.samples > 0 {
		out.Running, out.Queue = mean(p.running, p.samples), mean(p.queue, p.samples)
	}
	return out
}

// mean returns a mean with two decimal places.
func mean(sum, n int) float64 { return math.Round(100*float64(sum)/float64(n)) / 100 }

// toRecord returns a point in its stored form.
func (p *point) toRecord() record.SeriesStep {
	f := record.SeriesStep{
		At: p.at, Samples: p.samples, Running: p.running, Queue: p.queue, Peak: p.peak,
		Pulled: p.pulled,
	}
	if p.starts != nil {
		for class, n := range p.starts {
			if n > 0 {
				f.Starts = append(f.Starts, uint32(class), n)
			}
		}
	}
	return f
}

// pointOf returns the point of a recorded step.
func pointOf(f *record.SeriesStep) point {
	p := point{at: f.At, samples: f.Samples, running: f.Running, queue: f.Queue, peak: f.Peak, pulled: f.Pulled}
	for i := 0; i+1 < len(f.Starts); i += 2 {
		if class := f.Starts[i]; class < startClasses {
			if p.starts == nil {
				p.starts = new([startClasses]uint32)
			}
			p.starts[class] += f.Starts[i+1]
		}
	}
	return p
}

// recordID returns the id of the record of some steps.
func recordID(step time.Duration, batch int64) string {
	return fmt.Sprintf("%d-%d", int64(step/time.Second), batch)
}
