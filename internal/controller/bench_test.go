package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// farmBench is a controller over a durable store with nodes that start their orders immediately.
// They call it without HTTP.
type farmBench struct {
	*Controller
	b       *testing.B
	started atomic.Int64
	moved   chan struct{} // has a value when started grew
}

func benchFarm(b *testing.B, nodes, capacity int, to ...events.Target) *farmBench {
	b.Helper()
	backend, err := etcd.StartEmbedded(b.Context(), etcd.EmbeddedOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	tables := record.NewTables(nil)
	st, err := store.Open(b.Context(), backend, store.Options{Tables: tables.All()})
	if err != nil {
		b.Fatal(err)
	}
	core, err := New(b.Context(), st, tables, Options{
		Registry: &shelf{}, RegistryAddress: "http://registry", VMNamePrefix: "mgmtManaged-", Events: eventsTo(to...),
	})
	if err != nil {
		b.Fatal(err)
	}
	f := &farmBench{Controller: core, b: b, moved: make(chan struct{}, 1)}
	st.Subscribe(f.count)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = core.Run(ctx) })
	for i := range nodes {
		answer, err := f.Nodes.Join(ctx, api.JoinRequest{
			Protocol: api.LinkProtocol, Token: f.Nodes.JoinToken(), Name: fmt.Sprintf("n%03d", i), Host: "10.0.0.1",
			Capacity: capacity, Arch: "amd64",
		})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() { f.node(ctx, answer) })
	}
	for ready := 0; ready < nodes; time.Sleep(10 * time.Millisecond) {
		ready = 0
		for v := range f.Nodes.Views() {
			if v.Node.AcceptsStarts() && v.Info.CPUs > 0 {
				ready++
			}
		}
	}
	b.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := st.Close(); err != nil {
			b.Error(err)
		}
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	})
	return f
}

// count counts the instances that become Started.
func (f *farmBench) count(events []store.Event) {
	for _, e := range events {
		now, _ := e.New.(*farm.Instance)
		was, _ := e.Old.(*farm.Instance)
		if now != nil && now.State == farm.Started && (was == nil || was.State != farm.Started) {
			f.started.Add(1)
		}
	}
	select {
	case f.moved <- struct{}{}:
	default:
	}
}

// node polls, and reports its ordered instances as running.
func (f *farmBench) node(ctx context.Context, joined api.JoinAnswer) {
	boot := uuid.NewString()
	poll := api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: joined.NodeID, BootID: boot, InfoHash: "info", HeldHash: "0",
		Info: &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim"}, HasHeld: true,
	}
	var seq int64
	for ctx.Err() == nil {
		answer, err := f.Link.Poll(ctx, joined.Credential, poll, 5*time.Second)
		if err != nil {
			return
		}
		poll.Info, poll.HasHeld, poll.Acks = nil, false, nil
		report := api.Report{Protocol: api.LinkProtocol, NodeID: joined.NodeID, BootID: boot}
		for _, o := range answer.Orders {
			poll.Acks = append(poll.Acks, api.Ack{InstanceID: o.InstanceID, Claim: o.Claim, Kind: o.Kind})
			phase := api.PhaseRunning
			if o.Kind == api.OrderTerminate {
				phase = api.PhaseTerminated
			}
			report.Statuses = append(report.Statuses, api.InstanceStatus{
				InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: phase,
				VM: &api.NodeVM{UUID: o.InstanceID, Name: "vm", Status: "running", IP: "10.0.2.15", HostIP: "10.0.0.1"},
			})
		}
		if len(report.Statuses) == 0 {
			continue
		}
		seq++
		report.Seq = seq
		if _, err := f.Link.Report(ctx, joined.Credential, report); err != nil && ctx.Err() == nil {
			f.b.Error(err)
		}
	}
}

// create starts n instances one by one from several callers.
func (f *farmBench) create(callers, n int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				f.start(1)
			}
		})
	}
	wg.Wait()
}

func (f *farmBench) start(count int) {
	_, err := f.Start(f.b.Context(), StartRequest{
		TemplateID: templateID, Count: count, ExternalID: "http://ci.example/job/4711", Name: "bench",
		Options: farm.StartOptions{Priority: farm.DefaultPriority},
	})
	if err != nil {
		f.b.Error(err)
	}
}

// processorTime returns the CPU time of the process so far. Other work on the machine affects it
// less than the wall-clock time.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs do and reports the processor time of one instance.
func (f *farmBench) measure(instances int, run func()) {
	f.b.ReportAllocs()
	f.b.ResetTimer()
	before := processorTime()
	run()
	f.b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(instances), "cpu-us/instance")
	f.b.StopTimer()
}

func (f *farmBench) await(started int) {
	for f.started.Load() < int64(started) {
		<-f.moved
	}
}

// BenchmarkCreate measures durable creates where no node is free.
func BenchmarkCreate(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			f := benchFarm(b, 0, 0)
			f.measure(b.N, func() {
				f.create(callers, b.N)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
			})
		})
	}
}

// nowhere accepts and drops all events.
type nowhere struct{}

func (nowhere) Send(_ context.Context, events []events.EncodedEvent) ([]bool, error) {
	arrived := make([]bool, len(events))
	for i := range arrived {
		arrived[i] = true
	}
	return arrived, nil
}

func eventsTo(to ...events.Target) events.Options {
	if len(to) == 0 {
		return events.Options{}
	}
	return events.Options{Machine: "bench", Push: to[0]}
}

// BenchmarkEvents is BenchmarkLife without events and with them.
func BenchmarkEvents(b *testing.B) {
	for name, to := range map[string][]events.Target{"off": nil, "on": {nowhere{}}} {
		b.Run(name, func(b *testing.B) {
			f := benchFarm(b, 100, 1000, to...)
			f.measure(b.N, func() {
				f.create(64, b.N)
				created := b.Elapsed()
				f.await(b.N)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "started/s")
				b.ReportMetric(float64(b.N)/created.Seconds(), "creates/s")
			})
		})
	}
}

// BenchmarkLife measures from the first of many single creates to all Started.
func BenchmarkLife(b *testing.B) {
	f := benchFarm(b, 100, 1000)
	f.measure(b.N, func() {
		f.create(64, b.N)
		created := b.Elapsed()
		f.await(b.N)
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "started/s")
		b.ReportMetric(float64(b.N)/created.Seconds(), "creates/s")
	})
}

// BenchmarkMany measures one request for 1,000 instances: until it is answered, and
// until all are Started.
func BenchmarkMany(b *testing.B) {
	f := benchFarm(b, 100, 1000)
	f.measure(b.N*MaxCount, func() {
		var created time.Duration
		for i := range b.N {
			began := time.Now()
			f.start(MaxCount)
			created += time.Since(began)
			f.await((i + 1) * MaxCount)
		}
		b.ReportMetric(created.Seconds()*1000/float64(b.N), "create-ms")
	})
}
