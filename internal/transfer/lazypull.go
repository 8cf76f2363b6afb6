package transfer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/fill"
	"github.com/buildyard/buildyard/internal/nbd"
	"github.com/buildyard/buildyard/internal/retry"
)

// demandConnections is how many connections fetch only what a guest waits for.
const demandConnections = 2

// LazyOptions describe a pull whose disks are read before it ends.
type LazyOptions struct {
	PullOptions
	// MinBytes is how much of a disk must be missing for it to be read before it is here; other files come first.
	MinBytes int64
	// HoldRest keeps back what neither a guest waits for nor a trace names until ReleaseRest is called.
	HoldRest bool
	// Complete is called once all files have their final names on stable storage, before what a later pull resumes from
	// is removed. nil: nothing.
	Complete func(PullResult) error
	// Waiting is called when a fetch has failed, with why, and with nil when fetches succeed again. nil: nothing.
	Waiting func(err error)
}

// LazyPull is a pull whose disks can be read before it ends: a read waits for the bytes that are missing. Its disks are
// flat.
type LazyPull struct {
	pull     *pull
	opts     LazyOptions
	manifest api.PullManifest
	disks    map[string]*LazyDisk

	failures struct {
		sync.Mutex
		failing bool
	}
}

// OpenLazyPull plans a pull, fetches what must be here before a VM can start, and returns the rest. It resumes a pull
// that was interrupted, lazy or not. The caller runs it, and closes it.
func (c *Client) OpenLazyPull(ctx context.Context, o LazyOptions) (f *LazyPull, err error) {
	o.AllowOverlays = false
	m, err := c.Manifest(ctx, o.Ref)
	if err != nil {
		return nil, err
	}
	if want := o.Ref.ContentID; want != "" && m.ContentID != want { // a pull that resumes would mix two versions
		return nil, fmt.Errorf("pull %s: the registry returned version %s instead of %s", m.Name, m.ContentID, want)
	}
	if err := checkManifest(m); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	f = &LazyPull{
		pull: &pull{client: c, opts: o.PullOptions, dir: root, storage: stableStorage{o.Sync}}, opts: o, manifest: m,
		disks: map[string]*LazyDisk{},
	}
	if err := f.open(ctx); err != nil {
		return nil, fmt.Errorf("pull %s %s: %w", m.Name, m.Version.Tag, errors.Join(err, f.Close()))
	}
	return f, nil
}

// open opens the files and fetches those that are not read before they are here.
func (f *LazyPull) open(ctx context.Context) error {
	p := f.pull
	total, err := p.openTargets(ctx, f.manifest)
	if err != nil {
		return err
	}
	p.progress = newProgressMeter(p.opts.Progress, total)
	files := map[string]api.PullFile{}
	for _, file := range f.manifest.Files {
		files[file.Name] = file
	}
	first, all := &pull{}, p.targets
	*first = pull{client: p.client, opts: p.opts, dir: p.dir, storage: p.storage, progress: p.progress}
	for _, t := range all {
		if isServable(files[t.name]) && t.file != nil && t.plan.FetchBytes()-t.doneBytes() >= f.opts.MinBytes {
			var order []int
			if f.opts.Peers != nil { // nodes that pull at the same time fetch different parts, and exchange them
				order = rand.Perm(fill.Parts(t.plan.FrameCount())) //nolint:gosec // not a secret: it spreads nodes
			}
			f.disks[t.name] = newLazyDisk(t, files[t.name].Trace, order, f.opts.HoldRest)
			p.progress.addSkipped(t.doneBytes())
			continue
		}
		first.targets = append(first.targets, t)
	}
	if err := first.fetchFrames(ctx); err != nil {
		return err
	}
	if err := first.renameEarly(); err != nil {
		return err
	}
	p.transferredBytes.Add(first.transferredBytes.Load())
	p.peerBytes.Add(first.peerBytes.Load())
	return p.writeSettings(f.manifest)
}

// isServable reports whether a file is a disk that can be served as it is in the file.
func isServable(f api.PullFile) bool {
	return f.Kind == api.FileDisk && (f.Format == diskfile.FormatRaw || f.Format == "")
}

// Manifest returns what is pulled.
func (f *LazyPull) Manifest() api.PullManifest { return f.manifest }

// Disks returns the disks that are read before they are here, by their names.
func (f *LazyPull) Disks() map[string]*LazyDisk { return f.disks }

// Dir returns where the files are; those of Disks have another name until Run has ended.
func (f *LazyPull) Dir() string { return f.opts.Dir }

// ReleaseRest ends HoldRest.
func (f *LazyPull) ReleaseRest() {
	for _, d := range f.disks {
		d.queue.Release()
	}
}

// Close closes the files. Reads end with an error.
func (f *LazyPull) Close() error { return errors.Join(f.pull.close(), f.pull.dir.Close()) }

// Run fetches all that is missing, what guests wait for first, and renames the files to their final names. It
// continues after failures that may pass until the context ends.
func (f *LazyPull) Run(ctx context.Context) (PullResult, error) {
	group, inner := errgroup.WithContext(ctx)
	for _, d := range f.disks {
		for n := range demandConnections + pullConnections {
			group.Go(func() error { return f.work(inner, d, n < demandConnections) })
		}
	}
	err := group.Wait()
	for _, d := range f.disks {
		err = errors.Join(err, d.target.checkpoint()) // also after a failure: what is here need not be fetched again
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	result := f.pull.transferred()
	if err == nil {
		done := result
		done.Manifest, done.Files = f.manifest, f.pull.builtFiles
		err = f.pull.renameFinished(func() error {
			if f.opts.Complete == nil {
				return nil
			}
			return f.opts.Complete(done)
		})
	}
	if err != nil {
		return result, fmt.Errorf("pull %s %s: %w", f.manifest.Name, f.manifest.Version.Tag, err)
	}
	f.pull.progress.finish()
	result.Manifest, result.Files = f.manifest, f.pull.builtFiles
	return result, nil
}

// work fetches batches of a disk.
func (f *LazyPull) work(ctx context.Context, d *LazyDisk, demandOnly bool) error {
	fetcher, wait := newFetcher(f.pull), retry.New(minBackoff, maxBackoff)
	for {
		b, ok, err := d.queue.Next(ctx, demandOnly)
		if err != nil || !ok {
			return err
		}
		layer, _ := d.target.frameAt(b.First)
		err = fetcher.fetchAnywhere(ctx,
			fetchSpan{target: d.target, layer: layer, firstFrame: b.First, endFrame: b.End}, b.Class == fill.Demand)
		f.note(err)
		if err == nil {
			wait.Reset()
			continue
		}
		d.queue.Return(b)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !IsTemporary(err) {
			return err
		}
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}

// note tells the caller when fetches begin to fail, and when they succeed again.
func (f *LazyPull) note(err error) {
	f.failures.Lock()
	defer f.failures.Unlock()
	if f.opts.Waiting == nil || err == nil && !f.failures.failing {
		return
	}
	f.failures.failing = err != nil
	f.opts.Waiting(err)
}

// LazyDisk is a disk of which parts may be missing. It is an nbd.Disk.
type LazyDisk struct {
	target *pullTarget
	queue  *fill.Queue
	pieces []diskPiece // by their places on the disk

	mu        sync.Mutex // guards the fields below
	seen      map[int]bool
	read      []int // frames of the plan in the order of their first read
	readBytes int64 // stored bytes of the frames that were read
}

var _ nbd.Disk = (*LazyDisk)(nil)

// diskPiece is a part of a disk that is in a frame of the plan.
type diskPiece struct {
	off   int64
	size  int32
	frame int32
}

func newLazyDisk(t *pullTarget, trace, partOrder []int, holdRest bool) *LazyDisk {
	d := &LazyDisk{target: t, seen: map[int]bool{}}
	for i := range t.plan.FrameCount() {
		for piece := range t.plan.Placements(i) {
			d.pieces = append(d.pieces, diskPiece{piece.DiskOff, int32(piece.Len), int32(i)})
		}
	}
	slices.SortFunc(d.pieces, func(a, b diskPiece) int { return int(max(-1, min(1, a.off-b.off))) })
	d.queue = fill.NewQueue(fill.Options{
		Frames: t.plan.FrameCount(), IsHere: t.hasFrame, Joins: t.joins, Trace: t.tracedFrames(trace),
		HoldRest: holdRest, PartOrder: partOrder,
	})
	t.onFrame = d.queue.Done
	return d
}

// joins reports whether one request may fetch a frame and the next one.
func (t *pullTarget) joins(i int) bool {
	if i+1 >= t.plan.FrameCount() {
		return false
	}
	layer, f := t.frameAt(i)
	nextLayer, next := t.frameAt(i + 1)
	return layer == nextLayer && next.Offset-(f.Offset+int64(f.StoredSize)) <= maxGapBytes
}

// Size returns the size of the disk.
func (d *LazyDisk) Size() int64 { return d.target.plan.DiskSize() }

// overlapping yields the pieces with a byte between off and end, in order.
func (d *LazyDisk) overlapping(off, end int64) iter.Seq[diskPiece] {
	return func(yield func(diskPiece) bool) {
		i := sort.Search(len(d.pieces), func(i int) bool { return d.pieces[i].off+int64(d.pieces[i].size) > off })
		for ; i < len(d.pieces) && d.pieces[i].off < end; i++ {
			if !yield(d.pieces[i]) {
				return
			}
		}
	}
}

// ReadAt is nbd.Disk.ReadAt: it waits for what is missing.
func (d *LazyDisk) ReadAt(ctx context.Context, p []byte, off int64) (zero bool, err error) {
	var frames []int
	for piece := range d.overlapping(off, off+int64(len(p))) {
		if !slices.Contains(frames, int(piece.frame)) {
			frames = append(frames, int(piece.frame))
		}
	}
	if len(frames) == 0 && d.target.cloneSource == "" {
		return true, nil
	}
	d.trace(frames)
	if _, err := d.queue.Need(ctx, frames); err != nil {
		return false, err
	}
	_, err = d.target.file.ReadAt(p, off)
	return false, err
}

// Extents is nbd.Disk.Extents.
func (d *LazyDisk) Extents(off, end int64) iter.Seq[nbd.Extent] {
	return func(yield func(nbd.Extent) bool) {
		held := d.target.cloneSource != "" // what no frame has may be there
		at := off
		for piece := range d.overlapping(off, end) {
			from, to := max(off, piece.off), min(end, piece.off+int64(piece.size))
			if from > at && !yield(nbd.Extent{End: from, Data: held}) || !yield(nbd.Extent{End: to, Data: true}) {
				return
			}
			at = to
		}
		if at < end {
			yield(nbd.Extent{End: end, Data: held})
		}
	}
}

const (
	// maxTrace bounds the frames of a trace.
	maxTrace = 4096
	// maxTraceBytes bounds what is fetched because of a trace, in stored bytes of a disk.
	maxTraceBytes = 512 << 20
)

// firstFrames returns, for each layer, the number of its first frame in a trace.
func (t *pullTarget) firstFrames() []int {
	first := make([]int, len(t.indexes))
	for i := 1; i < len(first); i++ {
		first[i] = first[i-1] + t.indexes[i-1].FrameCount()
	}
	return first
}

// tracedFrames returns the frames of the plan that a trace names, in its order. What the plan does not have is here.
func (t *pullTarget) tracedFrames(trace []int) (frames []int) {
	first, planned, left := t.firstFrames(), map[int]int{}, int64(maxTraceBytes)
	if len(trace) == 0 {
		return nil
	}
	for i := range t.plan.FrameCount() {
		layer, n := t.plan.FramePosition(i)
		planned[first[layer]+n] = i
	}
	for _, n := range trace {
		i, ok := planned[n]
		if !ok {
			continue
		}
		_, f := t.frameAt(i)
		if left -= int64(f.StoredSize); left < 0 {
			break
		}
		frames = append(frames, i)
	}
	return frames
}

// trace records the first reads of frames.
func (d *LazyDisk) trace(frames []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range frames {
		if d.seen[i] || len(d.read) >= maxTrace {
			continue
		}
		_, f := d.target.frameAt(i)
		d.seen[i] = true
		d.read = append(d.read, i)
		d.readBytes += int64(f.StoredSize)
	}
}

// Trace returns the frames that were read so far, in the order of their first reads. What was here before the pull is
// not in it.
func (d *LazyDisk) Trace() api.FileTrace {
	var t api.FileTrace
	for _, l := range d.target.layers {
		t.Roots = append(t.Roots, l.Root)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	first := d.target.firstFrames()
	for _, i := range d.read {
		layer, n := d.target.plan.FramePosition(i)
		t.Frames = append(t.Frames, first[layer]+n)
	}
	return t
}

// SendTrace sends what was read so far to the registry. Disks that were not read, or that build on content of this
// host, are left out: their traces would not serve others.
func (f *LazyPull) SendTrace(ctx context.Context) error {
	t := api.BootTrace{ID: f.manifest.ID, ContentID: f.manifest.ContentID, Files: map[string]api.FileTrace{}}
	for name, d := range f.disks {
		if trace := d.Trace(); len(trace.Frames) > 0 && d.target.cloneSource == "" {
			t.Files[name] = trace
		}
	}
	if len(t.Files) == 0 {
		return nil
	}
	return f.pull.client.doCall(ctx, apiCall{
		method: http.MethodPut, path: "/registry/v2/pull/trace", request: t, idempotent: true,
	})
}

// LazyState is how far a disk is.
type LazyState struct {
	Bytes, Total int64 // stored bytes that are here, and of all frames
	Readers      int   // reads that wait
	Read         int   // frames that were read, maxTrace at most
	ReadBytes    int64 // stored bytes of these frames
}

// State returns how far the disk is.
func (d *LazyDisk) State() LazyState {
	d.target.mu.Lock()
	done := d.target.doneBytes()
	d.target.mu.Unlock()
	_, readers := d.queue.Left()
	d.mu.Lock()
	defer d.mu.Unlock()
	return LazyState{
		Bytes: done, Total: d.target.plan.FetchBytes(), Readers: readers, Read: len(d.read), ReadBytes: d.readBytes,
	}
}
