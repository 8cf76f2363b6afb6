package usage

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// ignored is an observer that counts nothing.
type ignored struct{}

var _ observer = ignored{}

func (ignored) placed(*farm.Instance, time.Duration)  {}
func (ignored) started(*farm.Instance, time.Duration) {}
func (ignored) failed(*farm.Instance)                 {}
func (ignored) runs(subject, int)                     {}

func BenchmarkCounters(b *testing.B) {
	now := time.Now()
	t := newCounters(record.DB{Now: time.Now}, ignored{})
	inst := &farm.Instance{ID: record.NewID(), State: farm.Scheduling, Created: now}
	up := inst.Clone()
	up.State, up.NodeID, up.Placed, up.Started = farm.Started, "n", now, now
	b.ReportAllocs()
	for b.Loop() {
		for _, i := range []*farm.Instance{inst, up, nil} {
			was := t.seen[inst.ID]
			t.newsLocked(was, i, now)
			t.enterLocked(inst.ID, was, i)
		}
	}
}
