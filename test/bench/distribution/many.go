package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

// Many nodes take a version at the same time. Their data is in memory: on one disk they would wait for each other.
const (
	manyNodes  = 8
	manySize   = 1 << 30                    // of the version, all of it noise
	manySpace  = "4g"                       // file system of a node
	manyMemory = manyNodes*manySize + 3<<30 // bytes that have to be free
	slowRounds = 1                          // at the slow rate, each of them longer than a minute
	peerPort   = "8093"                     // at which nodes read from each other
)

// round is one distribution of the version.
type round struct {
	Nodes   int     `json:"nodes"`
	Rate    int64   `json:"rate"`    // of links, in bytes a second
	Seconds float64 `json:"seconds"` // until all of the nodes had it
	Sent    int64   `json:"sent"`    // bytes, by controller and registry
	Stored  int64   `json:"stored"`  // bytes of one copy
	// Processor is the processor time, in seconds, of all agents, controller and registry.
	Processor float64 `json:"processor_seconds"`
	// Busy is the processor time, in seconds, that the machine has used for anything.
	Busy  float64 `json:"busy_seconds"`
	Cores int     `json:"cores"`
}

// copies is what controller and registry have sent, in copies of the version.
func (r round) copies() float64 { return float64(r.Sent) / float64(r.Stored) }

// bound is how long the round takes at least on this machine, in seconds, however fast the links are.
func (r round) bound() float64 { return r.Processor / float64(r.Cores) }

func (r round) String() string {
	return fmt.Sprintf("%d of %d nodes at %.0f Mbit/s: %.1f s; sent %.3f copies; %.1f s of processor time, so at "+
		"least %.1f s on %d cores, which were busy for %.0f %%", r.Nodes, manyNodes, float64(r.Rate)*8/1e6, r.Seconds,
		r.copies(), r.Processor, r.bound(), r.Cores, 100*r.Busy/r.Seconds/float64(r.Cores))
}

// explain is the remark about the time of a round, next to that of one node alone: whether links, processors or
// programs that are not of the run bound it.
func explain(alone, all round) string {
	link := float64(all.Stored) / float64(all.Rate)
	return fmt.Sprintf("%.1f s, one node alone %.1f s; bounds: %.1f s by the links, %.1f s by %.1f s of processor "+
		"time on %d cores; all else on the machine used %.1f s", all.Seconds, alone.Seconds, link, all.bound(),
		all.Processor, all.Cores, max(0, all.Busy-all.Processor))
}

// middle returns the round of median time, the longer one of two.
func middle(rounds []round) round {
	sorted := slices.SortedFunc(slices.Values(rounds), func(a, b round) int {
		return cmp.Compare(a.Seconds, b.Seconds)
	})
	return sorted[len(sorted)/2]
}

// many measures how a version reaches many nodes.
func (b *bench) many(ctx context.Context) (err error) {
	free, err := rig.FreeMemory()
	if err != nil {
		return err
	}
	if free < manyMemory {
		return fmt.Errorf("%d MiB of memory are free, %d nodes with their data in memory need %d", free>>20, manyNodes,
			manyMemory>>20)
	}
	s, err := openStage(ctx, b, "many", map[string]string{"SVC_PEER_SUMS": "true"})
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	stored, err := s.pushNoise(ctx)
	if err != nil {
		return err
	}
	for i := range manyNodes {
		if err := s.joinInMemory(ctx, fmt.Sprint("n", i+1)); err != nil {
			return err
		}
	}
	b.Say("pushed a version of %d MiB and started %d nodes", stored>>20, manyNodes)
	return s.takeTurns(ctx, stored)
}

// takeTurns has one node pull the version alone, and then all nodes at the same time, at both rates. Nodes count as
// pulling for a minute after they did, so that the pulls alone come first.
func (s *stage) takeTurns(ctx context.Context, stored int64) error {
	kinds := []struct {
		rate        int64
		count       int
		bytes, time string
		alone       []round
	}{
		{rate: fullRate, count: s.starts, bytes: rowManyBytes, time: rowManyTime},
		{rate: slowRate, count: slowRounds, bytes: rowManyBytesSlow, time: rowManyTimeSlow},
	}
	for i, k := range kinds {
		if !s.Wants(k.bytes, k.time) {
			continue
		}
		alone, err := s.rounds(ctx, round{Rate: k.rate, Stored: stored}, k.count, s.nodes[:1])
		if err != nil {
			return err
		}
		kinds[i].alone = alone
	}
	for _, k := range kinds {
		if len(k.alone) == 0 {
			continue
		}
		all, err := s.rounds(ctx, round{Rate: k.rate, Stored: stored}, k.count, s.nodes)
		if err != nil {
			return err
		}
		alone := middle(k.alone)
		for _, r := range all {
			s.Add(k.bytes, r.copies())
			s.Add(k.time, r.Seconds/alone.Seconds)
		}
		s.Note(k.time, "%s", explain(alone, middle(all)))
	}
	return nil
}

// rounds has nodes without the version take it, several times.
func (s *stage) rounds(ctx context.Context, like round, count int, nodes []*node) (done []round, err error) {
	if err := netns.LimitHub(ctx, like.Rate); err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		if err := n.Limit(ctx, like.Rate); err != nil {
			return nil, err
		}
	}
	for range count {
		if err := s.discardKnown(ctx); err != nil {
			return nil, err
		}
		r, err := s.round(ctx, like, nodes)
		if err != nil {
			return nil, err
		}
		s.Say("%s", r)
		done = append(done, r)
		s.distributions = append(s.distributions, r)
	}
	return done, nil
}

// round measures one distribution.
func (s *stage) round(ctx context.Context, r round, nodes []*node) (round, error) {
	before, err := s.spent()
	if err != nil {
		return r, err
	}
	took, err := s.distribute(ctx, s.template, nodes...)
	if err != nil {
		return r, err
	}
	after, err := s.spent()
	r.Nodes, r.Seconds, r.Cores = len(nodes), took.Seconds(), runtime.NumCPU()
	r.Sent = after.sent - before.sent
	r.Processor, r.Busy = (after.own - before.own).Seconds(), (after.all - before.all).Seconds()
	return r, err
}

// spent is what has been used since the start of the programs.
type spent struct {
	sent int64         // bytes over the bridge by controller and registry
	own  time.Duration // processor time of the programs
	all  time.Duration // processor time of everything on the machine
}

func (s *stage) spent() (sum spent, err error) {
	for _, p := range s.processes() {
		used, err := rig.ProcessorTime(p.PID())
		if err != nil {
			return sum, fmt.Errorf("processor time of %s: %w", p.Name, err)
		}
		sum.own += used
	}
	if sum.all, err = rig.MachineTime(); err != nil {
		return sum, err
	}
	sum.sent, err = netns.HubSent()
	return sum, err
}

// pushNoise pushes the version, and returns the bytes of one copy in the registry.
func (s *stage) pushNoise(ctx context.Context) (stored int64, err error) {
	disk := filepath.Join(s.dir, "noise.raw")
	if err := writeNoise(disk, manySize); err != nil {
		return 0, err
	}
	const config = `{"ram":"512M","cpu":{"cores":1},"hard_drives":[{"file":"system.raw","format":"raw"}]}`
	s.template, err = s.push(ctx, "noise", config,
		transfer.PushFile{Name: "system.raw", Path: disk, Kind: api.FileDisk, Format: "raw"})
	if err := errors.Join(err, os.Remove(disk)); err != nil {
		return 0, err
	}
	m, err := s.manifest(ctx, s.template)
	if err != nil {
		return 0, err
	}
	for _, f := range m.Files {
		for _, l := range f.Layers {
			stored += l.Size
		}
	}
	if stored < manySize {
		return 0, fmt.Errorf("the registry stores %d bytes of %d bytes of noise", stored, int64(manySize))
	}
	return stored, nil
}

// writeNoise writes a file that does not compress.
func writeNoise(path string, size int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	noise := rand.NewChaCha8([32]byte{2})
	block := make([]byte, mebibyte)
	for ; size > 0; size -= int64(len(block)) {
		block = block[:min(size, mebibyte)]
		_, _ = noise.Read(block)
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// joinInMemory adds a node that has its data in memory and exchanges versions with other nodes.
func (s *stage) joinInMemory(ctx context.Context, name string) error {
	dir := filepath.Join(s.dir, name)
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	options := "mode=755,size=" + manySpace
	if _, err := rig.Output(ctx, "", "mount", "-t", "tmpfs", "-o", options, "tmpfs", dir); err != nil {
		return err
	}
	s.mounts = append(s.mounts, dir)
	return s.join(ctx, rig.NodeOptions{
		Name: name, Capacity: 1, Driver: "sim",
		Args: []string{"--peer-listen", net.JoinHostPort("0.0.0.0", peerPort), "--peer-rate", "0"},
	})
}

// discardKnown removes the version from the nodes, and waits until the controller knows that it is gone: it names none
// of them to those that pull next.
func (s *stage) discardKnown(ctx context.Context) error {
	if err := s.discard(ctx, s.template); err != nil {
		return err
	}
	return s.await(ctx, endLimit, glance, "nodes to report that a template is gone", func() (bool, error) {
		all, err := s.listed(ctx)
		for _, n := range all {
			if len(n.Templates) > 0 {
				return false, err
			}
		}
		return err == nil, err
	})
}
