package fault

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// WorkloadOptions configures a Workload.
type WorkloadOptions struct {
	Name          string        // of the case, in its output
	Address       string        // of the controller, or of a load balancer before several
	Template      string        // that every instance is made of
	Workers       int           // concurrent clients
	KeptInstances int           // left alive at a time
	MaxLife       time.Duration // of the others
	Pause         time.Duration // between two calls about the same instance
	Seed          uint64
	NodeDir       string        // directory below which simulated nodes have their data
	Slots         int           // VMs that all nodes together can run
	CalmTime      time.Duration // how long everything may take to calm down in the end
	MaxStaleness  time.Duration // age that an answer of a replica may have
	AllowedErrors []string      // parts of the messages with which a fault may end an instance in Error
	Out           io.Writer     // for progress
}

// Workload is a number of clients that create, watch and terminate instances as CI jobs do, and the
// history of their calls. It is for clouds with simulated nodes.
type Workload struct {
	scene  *scene
	load   *load
	lister <-chan struct{}
	stop   context.CancelFunc
}

// Verdict is the result of a Workload.
type Verdict struct {
	Acknowledged                int // calls that change something
	Errors                      int // instances that ended in Error
	Lost, Orphans, Stuck, Wrong int
	Problems                    []string // a sentence for each
}

// StartWorkload begins the load. It continues until Stop, or until ctx ends.
func StartWorkload(ctx context.Context, o WorkloadOptions) *Workload {
	history := newHistory()
	s := &scene{
		bench: &bench{out: o.Out}, name: o.Name, history: history, client: newClient(o.Address, history),
		rules: rules{Errors: o.AllowedErrors}, capacity: o.Slots, calmTime: o.CalmTime,
		staleness: o.MaxStaleness,
		machines:  func() ([]machine, error) { return simMachines(o.NodeDir) },
	}
	working, stop := context.WithCancel(ctx)
	w := &Workload{scene: s, stop: stop}
	w.load = startLoad(working, s.client, loadOptions{
		Workers: o.Workers, Keep: o.KeptInstances, Longest: o.MaxLife, Templates: []string{o.Template}, Seed: o.Seed,
		Pause: o.Pause,
	})
	w.lister = s.watchList(working, w.load.alive)
	return w
}

// withStaleness returns the calls as if each that only looks had begun earlier: what was true then is a right answer.
func withStaleness(calls []call, age time.Duration) []call {
	if age == 0 {
		return calls
	}
	aged := slices.Clone(calls)
	for i := range aged {
		if slices.Contains([]op{opLook, opList, opWatch}, aged[i].Op) {
			aged[i].Begin -= age
		}
	}
	return aged
}

// Acknowledged returns the number of acknowledged calls so far that change something.
func (w *Workload) Acknowledged() int { return w.scene.history.acknowledged() }

// AwaitProgress waits until more calls were acknowledged; it is an error when that takes too long.
func (w *Workload) AwaitProgress(ctx context.Context, calls int, limit time.Duration) error {
	want, deadline := w.Acknowledged()+calls, time.Now().Add(limit)
	for w.Acknowledged() < want {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d calls were acknowledged within %s, want %d", w.Acknowledged()-want+calls, limit,
				calls)
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return nil
}

// RunningTwice returns the instances that have more than one running VM now.
func (w *Workload) RunningTwice() ([]string, error) {
	machines, err := w.scene.machines()
	if err != nil {
		return nil, err
	}
	running, twice := map[string]int{}, []string(nil)
	for _, m := range machines {
		if !m.Running || m.Check {
			continue
		}
		if running[m.Instance]++; running[m.Instance] == 2 {
			twice = append(twice, m.Instance)
		}
	}
	return twice, nil
}

// Stop ends the load and waits for its last call.
func (w *Workload) Stop() {
	w.stop()
	w.load.wait()
	<-w.lister
}

// Check waits until the cloud is calm, terminates everything, and compares the history with what is
// there. Stop comes first.
func (w *Workload) Check(ctx context.Context) (Verdict, error) {
	r, err := w.scene.check(ctx)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{
		Acknowledged: r.Acknowledged, Errors: r.Errors, Lost: r.Lost, Orphans: r.Orphans, Stuck: r.Stuck,
		Wrong: r.Wrong, Problems: r.Problems,
	}, nil
}

// WriteHistory writes every call into a file, for the analysis of a failure.
func (w *Workload) WriteHistory(path string) error { return w.scene.history.write(path) }
