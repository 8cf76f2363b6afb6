package agent

import (
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/metric"
)

// metrics are the agent's counters since it started.
type metrics struct {
	polls       metric.Results
	reports     metric.Results
	starts      metric.Results
	saves       metric.Results
	failureLogs metric.Results // logs of VMs that failed

	scriptsOK, scriptsFailed, scriptsTimedOut metric.Counter

	lastPoll atomic.Int64 // epoch nanoseconds of the last poll that was answered; 0: none yet
}

// countedVMStatuses are the statuses by which VMs are counted.
var countedVMStatuses = []hv.Status{hv.Running, hv.Stopped, hv.Suspended}

// Families returns the metrics of the agent.
func (a *Agent) Families() []metric.Family {
	m := &a.metrics
	disk := func(pick func(free, total, vms int64) int64) func() float64 {
		return func() float64 { return float64(pick(a.opts.Machine.Disk())) }
	}
	return []metric.Family{
		{
			Name: "buildyard_node_vms", Kind: metric.KindGauge, Labels: []string{"status"},
			Help: "VMs on this node at the last check, by status",
			Read: a.countVMs,
		},
		metric.GaugeFamily("buildyard_node_instances", "Instances assigned to this node", func() float64 {
			a.mu.Lock()
			defer a.mu.Unlock()
			return float64(len(a.instances))
		}),
		{
			Name: "buildyard_node_capacity_vms", Kind: metric.KindGauge,
			Help: "VM capacity declared at the join; absent if the controller sets it",
			Read: func(s *metric.Series) {
				if n := a.opts.Identity.Capacity; n > 0 {
					s.Value(float64(n))
				}
			},
		},
		metric.GaugeFamily("buildyard_node_cpus", "CPUs of this node",
			func() float64 { return float64(a.opts.Machine.Facts().CPUs) }),
		metric.GaugeFamily("buildyard_node_memory_bytes", "Memory size of this node",
			func() float64 { return float64(a.opts.Machine.Facts().MemoryMB) * (1 << 20) }),
		metric.GaugeFamily("buildyard_node_memory_free_bytes", "Free memory of this node",
			func() float64 { return float64(a.opts.Machine.FreeMemoryMB()) * (1 << 20) }),
		metric.GaugeFamily("buildyard_node_disk_free_bytes", "Free bytes on the disk of the VMs",
			disk(func(free, _, _ int64) int64 { return free })),
		metric.GaugeFamily("buildyard_node_disk_size_bytes", "Size of the disk of the VMs",
			disk(func(_, total, _ int64) int64 { return total })),
		metric.GaugeFamily("buildyard_node_vm_disk_bytes", "Disk space used by VMs",
			disk(func(_, _, vms int64) int64 { return vms })),
		metric.GaugeFamily("buildyard_node_cache_bytes", "Disk space used by cached versions",
			func() float64 { return float64(a.opts.Templates.UsedBytes()) }),
		metric.GaugeFamily("buildyard_node_cached_versions", "Cached versions",
			func() float64 { return float64(len(a.opts.Templates.List())) }),
		m.starts.Family("buildyard_node_starts_total", "VM starts, by result"),
		m.saves.Family("buildyard_node_saves_total", "Saves of VMs, by result"),
		m.failureLogs.Family("buildyard_node_failure_logs_total", "Uploads of failure logs, by result"),
		{
			Name: "buildyard_node_scripts_total", Kind: metric.KindCounter, Labels: []string{"result"},
			Help: "Runs of startup scripts, by result",
			Read: func(s *metric.Series) {
				s.Value(m.scriptsOK.Value(), metric.OK)
				s.Value(m.scriptsFailed.Value(), metric.Failed)
				s.Value(m.scriptsTimedOut.Value(), "timeout")
			},
		},
		m.polls.Family("buildyard_node_polls_total", "Polls to the controller, by result"),
		m.reports.Family("buildyard_node_reports_total", "Reports to the controller, by result"),
		{
			Name: "buildyard_node_last_poll_age_seconds", Kind: metric.KindGauge,
			Help: "Time since the last successful poll; absent before the first one",
			Read: func(s *metric.Series) {
				if at := m.lastPoll.Load(); at != 0 {
					s.Value(max(time.Since(time.Unix(0, at)), 0).Seconds())
				}
			},
		},
	}
}

func (a *Agent) countVMs(s *metric.Series) {
	a.mu.Lock()
	vms := a.listedVMs
	a.mu.Unlock()
	counts := map[hv.Status]int{}
	for _, vm := range vms {
		counts[vm.Status]++
	}
	for _, status := range countedVMStatuses {
		s.Value(float64(counts[status]), string(status))
	}
}

// recordPoll records the result of a poll.
func (m *metrics) recordPoll(err error, now time.Time) {
	m.polls.Observe(err)
	if err == nil {
		m.lastPoll.Store(now.UnixNano())
	}
}

// countScript counts the result of a startup script.
func (m *metrics) countScript(s *api.ScriptStatus) {
	switch {
	case s.TimedOut:
		m.scriptsTimedOut.Inc()
	case scriptFailed(s):
		m.scriptsFailed.Inc()
	default:
		m.scriptsOK.Inc()
	}
}
