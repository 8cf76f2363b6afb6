package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
)

// untraced starts the guest on a node without it. Only this node sends traces, so that no two agree.
func (b *bench) untraced(ctx context.Context, s *stage) error {
	for range b.starts {
		st, err := s.cold(ctx, s.template)
		if err != nil {
			return err
		}
		b.Say("without a trace: %s", st)
		b.remote = append(b.remote, st.took)
	}
	return nil
}

// kills kills the process that serves the disk of a guest that boots, while a read waits, and measures until another
// one has answered a read.
func (b *bench) kills(ctx context.Context, s *stage) error {
	for range b.starts {
		if err := s.discard(ctx, s.template); err != nil {
			return err
		}
		id, err := s.create(ctx, s.template)
		if err != nil {
			return err
		}
		waited, err := s.kill(ctx)
		if err := errors.Join(err, s.end(context.WithoutCancel(ctx), id)); err != nil {
			return err
		}
		b.Add(rowKill, waited.Seconds())
		b.Say("killed the process that serves a disk: %.2f s", waited.Seconds())
	}
	return nil
}

func (s *stage) kill(ctx context.Context) (time.Duration, error) {
	version, err := s.version(ctx, s.nodes[0], s.template)
	if err != nil {
		return 0, err
	}
	process := 0
	err = s.await(ctx, startLimit, time.Millisecond, "a read that waits", func() (bool, error) {
		state, disk := served(ctx, version)
		process = state.PID
		return disk.Read >= readsBefore && disk.Readers > 0, nil
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		return 0, err
	}
	err = s.await(ctx, startLimit, time.Millisecond, "a read from the next process", func() (bool, error) {
		state, disk := served(ctx, version)
		return state.PID != process && disk.Read > disk.Readers, nil
	})
	return time.Since(began), err
}

// readsBefore is how many frames a guest has read before the process is killed: its system boots then.
const readsBefore = 60

// served asks the process that serves the disks of a version, and returns the disk that was read most; zero values when
// it does not answer.
func served(ctx context.Context, version string) (state lazyfill.State, disk lazyfill.Disk) {
	h, _, err := lazyfill.Open(version + ".fill")
	if err != nil {
		return state, disk
	}
	if state, err = h.State(ctx); err != nil {
		return lazyfill.State{}, disk
	}
	for _, d := range state.Disks {
		if d.Read > disk.Read {
			disk = d
		}
	}
	return state, disk
}

// fill measures the pull of the rest while a guest is idle, and a pull before the start.
func (b *bench) fill(ctx context.Context, s *stage) error {
	if err := s.discard(ctx, s.template); err != nil {
		return err
	}
	pulled, err := s.distribute(ctx, s.template, s.nodes[0])
	if err != nil {
		return err
	}
	if err := s.discard(ctx, s.template); err != nil {
		return err
	}
	st, err := s.begin(ctx, s.template)
	if err != nil {
		return err
	}
	began := time.Now()
	version, err := s.version(ctx, s.nodes[0], s.template)
	if err != nil {
		return err
	}
	err = s.await(ctx, pullLimit, look, "the end of a lazy pull", func() (bool, error) {
		_, err := os.Stat(version + ".fill")
		return errors.Is(err, fs.ErrNotExist), nil
	})
	if err != nil {
		return err
	}
	filled, left := time.Since(began), st.disk.Total-st.disk.Bytes
	if left <= 0 {
		return errors.New("nothing was left to pull when the guest was ready")
	}
	b.Say("pulled %d MiB in %.1f s, and the %d MiB that were left in %.1f s", st.disk.Total>>20, pulled.Seconds(),
		left>>20, filled.Seconds())
	b.Add(rowFill, filled.Seconds()/float64(left)/(pulled.Seconds()/float64(st.disk.Total)))
	moved, err := s.diskRate(ctx, st.id)
	err = errors.Join(err, s.end(context.WithoutCancel(ctx), st.id))
	if err != nil {
		return err
	}
	if st, err = s.begin(ctx, s.template); err != nil {
		return err
	}
	plain, err := s.diskRate(ctx, st.id)
	if err := errors.Join(err, s.end(context.WithoutCancel(ctx), st.id)); err != nil {
		return err
	}
	b.Say("the disk reads %.0f MiB/s after the move, %.0f MiB/s without one", moved/mebibyte, plain/mebibyte)
	b.Add(rowDisk, moved/plain)
	return nil
}

// warm starts the guest on a node that has all of it, where fill has left it; else it pulls it first.
func (b *bench) warm(ctx context.Context, s *stage) error {
	if _, err := s.distribute(ctx, s.template, s.nodes[0]); err != nil {
		return err
	}
	if _, err := s.once(ctx, s.template); err != nil { // it reads the files into the page cache
		return err
	}
	for range b.starts {
		st, err := s.once(ctx, s.template)
		if err != nil {
			return err
		}
		if st.disk.Total != 0 {
			return errors.New("a start on a node with the template was lazy")
		}
		b.Say("with all of the template: %s", st)
		b.local = append(b.local, st.took)
	}
	return nil
}

// agree lets a second node start the guest, so that the traces of two nodes agree.
func (b *bench) agree(ctx context.Context, s *stage) error {
	if err := s.discard(ctx, s.template); err != nil {
		return err
	}
	if _, err := s.once(ctx, s.template); err != nil { // the first node
		return err
	}
	if err := s.join(ctx, lazily("b")); err != nil {
		return err
	}
	if err := s.drain(ctx, s.nodes[0], true); err != nil {
		return err
	}
	id, err := s.create(ctx, s.template)
	if err != nil {
		return err
	}
	err = s.await(ctx, startLimit, glance, "a start on the second node", func() (bool, error) {
		inst, err := s.instance(ctx, id)
		return inst.InstanceState == "Started", err
	})
	if err := errors.Join(err, s.end(context.WithoutCancel(ctx), id)); err != nil {
		return err
	}
	if err := s.drain(ctx, s.nodes[1], true); err != nil { // the controller does not notice its end immediately
		return err
	}
	if err := s.nodes[1].End(); err != nil { // the machine has two processors
		return err
	}
	s.nodes = s.nodes[:1]
	if err := s.drain(ctx, s.nodes[0], false); err != nil {
		return err
	}
	return s.await(ctx, endLimit, glance, "a trace of two nodes", func() (bool, error) {
		frames, err := s.trace(ctx)
		if frames > 0 {
			b.Say("two boots agree on %d frames", frames)
		}
		return frames > 0, err
	})
}

// trace returns how many frames of the guest's disk two traces name.
func (s *stage) trace(ctx context.Context) (int, error) {
	m, err := s.manifest(ctx, s.template)
	if err != nil {
		return 0, err
	}
	frames := 0
	for _, f := range m.Files {
		if f.Kind == api.FileDisk {
			frames += len(f.Trace)
		}
	}
	return frames, nil
}

// traced starts the guest on a node without it at the full rate, and with a trace.
func (b *bench) traced(ctx context.Context, s *stage) error {
	for range b.starts {
		st, err := s.cold(ctx, s.template)
		if err != nil {
			return err
		}
		b.Say("with a trace: %s", st)
		if len(b.local) > 0 {
			b.Add(rowTraced, st.took.Seconds()/median(b.local).Seconds())
		}
		if st.disk.ReadBytes == 0 {
			return errors.New("the start was not lazy")
		}
		b.Add(rowFetched, float64(st.disk.Bytes)/float64(st.disk.ReadBytes))
	}
	return nil
}

// slowly is traced at the slow rate.
func (b *bench) slowly(ctx context.Context, s *stage) error {
	if err := s.nodes[0].Limit(ctx, slowRate); err != nil {
		return err
	}
	for range b.starts {
		st, err := s.cold(ctx, s.template)
		if err != nil {
			return err
		}
		b.Say("with a trace at the slow rate: %s", st)
		b.slow, b.set = append(b.slow, st.took), append(b.set, st.disk.ReadBytes)
	}
	return s.nodes[0].Limit(ctx, fullRate)
}

// large starts the system of the guest with a second disk of 52 GB.
func (b *bench) large(ctx context.Context, s *stage) error {
	second := filepath.Join(b.Dir, "large.qcow2")
	if err := writeLargeDisk(second); err != nil {
		return err
	}
	template, err := s.pushLarge(ctx, second)
	if err != nil {
		return err
	}
	b.Say("pushed a template of 60 GB")
	if err := s.discard(ctx, s.template); err != nil {
		return err
	}
	for range b.starts {
		st, err := s.cold(ctx, template)
		if err != nil {
			return err
		}
		b.Say("of 60 GB, without a trace: %s", st)
		b.Add(rowLarge, st.took.Seconds()/median(b.remote).Seconds())
	}
	return s.discard(ctx, template)
}
