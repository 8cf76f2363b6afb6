package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/buildyard/buildyard/test/rig"
)

// contender is one of the compared operations: it returns its seconds.
type contender func() (float64, error)

// turns runs rivals one after the other and returns their seconds in the order of the
// arguments; each round begins with another one, so that none always comes first.
func turns(n int, rivals ...contender) ([]float64, error) {
	seconds := make([]float64, len(rivals))
	for i := range rivals {
		at := (n + i) % len(rivals)
		if rivals[at] == nil {
			continue
		}
		var err error
		if seconds[at], err = rivals[at](); err != nil {
			return nil, err
		}
	}
	return seconds, nil
}

// round measures every row once, on a registry that is empty at first.
func (b *bench) round(ctx context.Context, n int) (err error) {
	s, err := b.open(ctx, "pair"+strconv.Itoa(n))
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	root, err := s.pushBase(ctx, n)
	if err != nil {
		return err
	}
	if err := s.pulls(ctx, n, root); err != nil {
		return err
	}
	if err := s.cpu(ctx, n, root); err != nil {
		return err
	}
	tags := []struct {
		template   string
		disk       disk
		bytes, row string
	}{
		{withScattered, b.disks.scattered, rowScatteredBytes, rowScattered},
		{withClustered, b.disks.clustered, rowClusteredBytes, rowClustered},
	}
	for _, t := range tags {
		if !b.Wants(t.bytes, t.row, rowPeerBytes) {
			continue
		}
		if err := s.nextTag(ctx, n, root, next{t.template, t.disk, t.bytes, t.row}); err != nil {
			return err
		}
	}
	if b.Wants(rowStart) {
		return s.starts(ctx)
	}
	return nil
}

// pushBase measures the push of the base compared to reading it.
func (s *benchEnv) pushBase(ctx context.Context, n int) (root string, err error) {
	base := s.b.disks.base
	var read contender
	if s.b.Wants(rowPush) {
		read = func() (float64, error) { return s.timed(func() error { return readDirect(base) }) }
	}
	seconds, err := turns(n, read, func() (float64, error) {
		if err := evict(base.path); err != nil {
			return 0, err
		}
		out, err := send(ctx, order{Registry: s.registry, Template: withScattered, Tag: "base", Image: base.path})
		root = out.Root
		return out.Seconds, err
	})
	if err != nil {
		return "", err
	}
	if read != nil {
		s.b.Add(rowPush, seconds[0]/seconds[1])
		s.b.Note(rowPush, "last pair: %.0f MB/s pushed, %.0f MB/s read", mbs(base.data, seconds[1]),
			mbs(base.data, seconds[0]))
	}
	_, err = send(ctx, order{Registry: s.registry, Template: withClustered, Tag: "base", Image: base.path, Root: root})
	return root, err
}

func mbs(bytes int64, seconds float64) float64 { return float64(bytes) / seconds / 1e6 }

// pulls measures the pull of the base compared to copies of its layer and its image, and to the
// peer.
func (s *benchEnv) pulls(ctx context.Context, n int, root string) error {
	b := s.b
	if !b.Wants(rowPull, rowNaive, rowPeerPull) {
		return nil
	}
	path, length, err := s.layer(root)
	if err != nil {
		return err
	}
	var plain, eager, naive, peer contender
	if b.Wants(rowPull) {
		copying := func(every int64) contender {
			return s.copying(func(to string) error { return copyRanges(ctx, s.blobAddress(root), length, to, every) })
		}
		plain, eager = copying(0), copying(behind)
	}
	if b.Wants(rowNaive) {
		naive = s.copying(func(to string) error { return copyNaive(ctx, s.bareAddress(b.disks.base.path), to) })
	}
	if b.Wants(rowPeerPull) {
		peer = warm(b.peer.storage(), func() (float64, error) { return b.peer.pull(ctx, s.path("peer")) })
	}
	ours := func() (float64, error) {
		out, err := s.pull(ctx, b.disks.base, order{Template: withScattered, Tag: "base"})
		return out.Seconds, err
	}
	seconds, err := turns(n, warm(path, ours), warm(path, plain), warm(path, eager), naive, peer)
	if err != nil {
		return err
	}
	for i, name := range []string{rowPull, "", rowNaive, rowPeerPull} {
		if name != "" && seconds[i+1] > 0 {
			b.Add(name, seconds[0]/seconds[i+1])
			b.Note(name, "last pair: %.2f s to %.2f s", seconds[0], seconds[i+1])
		}
	}
	if plain != nil {
		b.Note(rowPull, "last pair: %.2f s to %.2f s, and to %.2f s with write-behind", seconds[0], seconds[1],
			seconds[2])
	}
	return nil
}

// warm reads what a registry stores below a path into memory first, so that the order of readers
// does not matter.
func warm(path string, r contender) contender {
	if r == nil {
		return nil
	}
	return func() (float64, error) {
		if err := readBelow(path); err != nil {
			return 0, err
		}
		return r()
	}
}

// readBelow reads a file, or all files below a directory.
func readBelow(path string) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = fs.WalkDir(dir.FS(), filepath.Base(path), func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := dir.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		return errors.Join(err, f.Close())
	})
	return errors.Join(err, dir.Close())
}

// copying measures something that makes a file, and removes the file.
func (s *benchEnv) copying(work func(path string) error) contender {
	return func() (float64, error) {
		path := s.path("copy")
		seconds, err := s.timed(func() error { return work(path) })
		return seconds, errors.Join(err, os.Remove(path))
	}
}

// pull pulls a version in a separate process, compares the result with the expected disk, and
// removes it.
func (s *benchEnv) pull(ctx context.Context, want disk, o order) (out outcome, err error) {
	o.Registry, o.Dir = s.registry, s.path("pull")
	if err := rig.MakeDir(o.Dir); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	if err := settle(s.dir); err != nil {
		return out, err
	}
	if out, err = send(ctx, o); err != nil {
		return out, err
	}
	return out, compare(filepath.Join(o.Dir, diskName), o.Below, out, want)
}

// next is a tag that comes after the base.
type next struct {
	template   string
	disk       disk
	bytes, row string
}

// nextTag pushes what a next tag changes, and measures its pull onto the base.
func (s *benchEnv) nextTag(ctx context.Context, n int, root string, t next) error {
	b, base := s.b, s.b.disks.base.path
	_, err := send(ctx, order{
		Registry: s.registry, Template: t.template, Tag: "next", Image: t.disk.path, Parent: root, Below: base,
	})
	if err != nil {
		return err
	}
	var out outcome
	raw := s.copying(func(path string) error { return writeDirect(path, t.disk.changed) })
	seconds, err := turns(n, raw, func() (float64, error) {
		out, err = s.pull(ctx, t.disk, order{Template: t.template, Tag: "next", Held: root, Below: base})
		return out.Seconds, err
	})
	if err != nil {
		return err
	}
	if b.Wants(t.row) {
		b.Add(t.row, seconds[1]/seconds[0])
		b.Note(t.row, "%s; last pair: %.3f s to %.3f s", out.Built.Form, seconds[1], seconds[0])
	}
	if b.Wants(t.bytes) {
		b.Add(t.bytes, float64(out.Bytes)/float64(t.disk.changed))
		b.Note(t.bytes, "%.1f of %.1f MB", float64(out.Bytes)/1e6, float64(t.disk.changed)/1e6)
	}
	if t.template == withClustered && b.Wants(rowPeerBytes) {
		b.Add(rowPeerBytes, float64(b.peer.nextBytes)/float64(out.Bytes))
		b.Note(rowPeerBytes, "%.1f MB to %.1f MB", float64(b.peer.nextBytes)/1e6, float64(out.Bytes)/1e6)
	}
	return nil
}

// times is how often the layer is read for the row of the processor time, whose clock
// ticks every 10 ms.
const times = 4

// cpu measures the processor time of serving the layer, by the registry and by the
// bare file server.
func (s *benchEnv) cpu(ctx context.Context, n int, root string) error {
	if !s.b.Wants(rowCPU) {
		return nil
	}
	path, length, err := s.layer(root)
	if err != nil {
		return err
	}
	serving := func(p *rig.Process, address string) contender {
		return func() (float64, error) {
			before, err := rig.ProcessorTime(p.PID())
			if err != nil {
				return 0, err
			}
			if err := readRanges(ctx, address, length, times); err != nil {
				return 0, err
			}
			after, err := rig.ProcessorTime(p.PID())
			return (after - before).Seconds(), err
		}
	}
	seconds, err := turns(n, serving(s.reg, s.blobAddress(root)), serving(s.bare, s.bareAddress(path)))
	if err != nil {
		return err
	}
	if seconds[1] == 0 {
		return errors.New("the bare file server took no processor time")
	}
	s.b.Add(rowCPU, seconds[0]/seconds[1])
	s.b.Note(rowCPU, "last pair: %.3f to %.3f s a GB", seconds[0]/float64(length)/times*1e9,
		seconds[1]/float64(length)/times*1e9)
	return nil
}
