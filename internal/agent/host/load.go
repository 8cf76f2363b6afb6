package host

import "time"

// LoadMeter measures the resource usage of a changing set of processes. It is used from one goroutine;
// the zero value is ready.
type LoadMeter struct {
	lastCPUTime map[int]time.Duration // pid -> processor time at the last measure
	measuredAt  time.Time
}

// Measure returns the shares of all processors (since the last call) and of the memory that the
// processes use, both 0..1. The first call returns no processor share.
func (l *LoadMeter) Measure(now time.Time, pids []int) (cpu, ram float64) {
	facts := ReadFacts()
	times := make(map[int]time.Duration, len(pids))
	var spent time.Duration
	var resident int64
	for _, pid := range pids {
		used, bytes, ok := processUsage(pid)
		if !ok {
			continue
		}
		times[pid] = used
		resident += bytes
		if before, known := l.lastCPUTime[pid]; known && used > before {
			spent += used - before
		}
	}
	if passed := now.Sub(l.measuredAt); !l.measuredAt.IsZero() && passed > 0 && facts.CPUs > 0 {
		cpu = min(1, float64(spent)/float64(passed)/float64(facts.CPUs))
	}
	if facts.MemoryMB > 0 {
		ram = min(1, float64(resident)/float64(int64(facts.MemoryMB)<<20))
	}
	l.lastCPUTime, l.measuredAt = times, now
	return cpu, ram
}
