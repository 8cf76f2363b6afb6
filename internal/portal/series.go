package portal

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/chart"
)

// chartColumn returns the column of a chart.
func chartColumn(name string, value func(p *api.SeriesPoint) *float64) chart.Column {
	return chart.Column{Name: name, Value: value}
}

// The columns of the cloud's series. runningOf returns nil while no node reports: then it is not known what runs.
func runningOf(p *api.SeriesPoint) *float64 {
	lost := p.OfflineNodes != nil && *p.OfflineNodes > 0 && p.ActiveNodes != nil && *p.ActiveNodes == 0
	if lost && p.Running == 0 {
		return nil
	}
	return &p.Running
}

func queueOf(p *api.SeriesPoint) *float64  { return &p.Queue }
func medianOf(p *api.SeriesPoint) *float64 { return p.StartP50 }
func p95Of(p *api.SeriesPoint) *float64    { return p.StartP95 }

func queuePeakOf(p *api.SeriesPoint) *float64 {
	peak := float64(p.QueuePeak)
	return &peak
}

func pulledOf(p *api.SeriesPoint) *float64 {
	pulled := float64(p.Pulled)
	return &pulled
}

func startsOf(p *api.SeriesPoint) *float64 {
	starts := float64(p.Starts)
	return &starts
}

func failuresOf(p *api.SeriesPoint) *float64 {
	failures := float64(p.Failures)
	return &failures
}

// The columns of a node's series.
func cpuOf(p *api.SeriesPoint) *float64       { return p.CPUUtil }
func memoryOf(p *api.SeriesPoint) *float64    { return p.RAMUtil }
func slotsUsedOf(p *api.SeriesPoint) *float64 { return p.SlotsUsed }
func capacityOf(p *api.SeriesPoint) *float64  { return p.Capacity }
