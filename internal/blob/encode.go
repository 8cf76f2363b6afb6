package blob

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// FrameSink receives the stored bytes of the next frame of a layer, in order. f.Offset is set, and end is the end of
// the frame's last run in the file. It must not keep the slice. Sinks are called from one goroutine.
type FrameSink func(f Frame, end int64, stored []byte) error

// Encode makes a layer against zeros of a file that must not change while it runs: whole blocks of zeros are
// left out. Equal files yield equal layers. Memory is bounded by 4 MiB a worker, 2 MiB and the index.
func Encode(ctx context.Context, src Source, o EncodeOptions, sink FrameSink) (*Index, error) {
	if !o.Parent.IsZero() {
		return nil, errors.New("a complete file has no parent layer")
	}
	return encodeFrom(ctx, &wholeFileSource{ranges: dataRanges{src: src, size: o.Size}}, o, sink)
}

// EncodeChanges makes a layer against o.Parent of a disk that must not change while it runs. Blocks of zeros
// become zero runs. Memory is bounded as in Encode.
func EncodeChanges(ctx context.Context, src Changes, o EncodeOptions, sink FrameSink) (*Index, error) {
	if o.Parent.IsZero() {
		return nil, errors.New("encoding changes requires the parent layer")
	}
	var f changeSource = &deltaSource{changes: src, diskSize: o.Size}
	if c, ok := src.(*diskComparison); ok {
		if c.diskSize != o.Size {
			return nil, fmt.Errorf("blob.Compare was called with a disk size of %d bytes, EncodeOptions.Size is %d",
				c.diskSize,
				o.Size)
		}
		f = newCompareSource(c)
	}
	return encodeFrom(ctx, f, o, sink)
}

// encodePipeline is a pipeline. walk finds the ranges to read, load reads batches of them in any order, and collect
// fills frames with the results, in the order of the file. pack compresses frames in any order, and deliver
// passes them to the sink in order. The fixed numbers of batches and jobs bound its memory.
type encodePipeline struct {
	source     changeSource
	batches    workQueue[*rangeBatch]
	frameJobs  workQueue[*frameJob]
	sourceDone bool      // walk has reached the end of the disk
	curJob     *frameJob // filled by collect
	builder    *Builder
	summed     bool           // see EncodeOptions.DecodedSums
	sectioned  bool           // it is a disk: metadata of its file systems is apart from content of files
	zeroRuns   zeroRunEncoder // filled by collect; deliver uses the rest of build
}

func encodeFrom(ctx context.Context, f changeSource, o EncodeOptions, sink FrameSink) (*Index, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	workers := o.Workers
	if workers <= 0 {
		workers = min(4, runtime.GOMAXPROCS(0))
	}
	e := &encodePipeline{source: f, batches: newWorkQueue(4*workers, newRangeBatch), frameJobs: newWorkQueue(workers+1,
		newFrameJob), builder: NewBuilder(o), summed: o.DecodedSums, sectioned: o.Kind == KindDisk}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer e.batches.close(); return e.findRanges(ctx) })
	group.Go(func() error { defer e.frameJobs.close(); return e.fillFrames(ctx) })
	group.Go(func() error { return e.deliverFrames(ctx, sink) })
	for range workers {
		group.Go(e.encodeFrames)
	}
	for range 2 * workers {
		group.Go(e.readRanges)
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	e.builder.zeroRuns = e.zeroRuns
	return e.builder.Index()
}

// findRanges fills batches with the ranges to read.
func (e *encodePipeline) findRanges(ctx context.Context) error {
	for {
		s, err := e.batches.acquire(ctx)
		if err != nil {
			return err
		}
		s.reset()
		more, err := e.source.nextBatch(s)
		if err != nil || !more {
			e.sourceDone = err == nil
			return err
		}
		e.batches.submit(s)
	}
}

func (e *encodePipeline) readRanges() error {
	scratch := make([]byte, batchBytes)
	for s := range e.batches.toProcess {
		s.loaded <- e.source.readBatch(s, scratch)
	}
	return nil
}

// fillFrames puts the ranges of the batches into frames and zero runs.
func (e *encodePipeline) fillFrames(ctx context.Context) error {
	for s := range e.batches.inOrder {
		if err := <-s.loaded; err != nil {
			return err
		}
		for _, f := range s.toStore {
			if f.Kind != ChangeData {
				e.zeroRuns.add(ZeroRun{Run{f.Off, f.Len}, f.Kind == ChangeDiscard})
				continue
			}
			if err := e.appendData(ctx, f.Off, f.data); err != nil {
				return err
			}
		}
		e.batches.freeItems <- s
	}
	if e.sourceDone && e.curJob != nil {
		e.frameJobs.submit(e.curJob)
	}
	return context.Cause(ctx)
}

// appendData appends bytes that are at off to the current frame, and continues in the next when it is full.
func (e *encodePipeline) appendData(ctx context.Context, off int64, p []byte) error {
	for len(p) > 0 {
		if e.curJob == nil {
			var err error
			if e.curJob, err = e.frameJobs.acquire(ctx); err != nil {
				return err
			}
		}
		n := min(len(p), MaxFrameSize-len(e.curJob.raw))
		e.curJob.appendRun(off, p[:n])
		p, off = p[n:], off+int64(n)
		if len(e.curJob.raw) == MaxFrameSize {
			e.frameJobs.submit(e.curJob)
			e.curJob = nil
		}
	}
	return nil
}

func (e *encodePipeline) encodeFrames() error {
	for j := range e.frameJobs.toProcess {
		j.done <- j.encode(e.sectioned, e.summed)
	}
	return nil
}

func (e *encodePipeline) deliverFrames(ctx context.Context, sink FrameSink) error {
	var off int64
	for j := range e.frameJobs.inOrder {
		if err := <-j.done; err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		j.frame.Offset = off
		off += int64(j.frame.StoredSize)
		e.builder.Add(j.frame, j.runs)
		last := j.runs[len(j.runs)-1]
		if err := sink(j.frame, last.Off+last.Len, j.stored); err != nil {
			return err
		}
		j.raw, j.runs = j.raw[:0], j.runs[:0]
		e.frameJobs.freeItems <- j
	}
	return nil
}

// frameJob is a frame that is filled, packed and delivered.
type frameJob struct {
	raw         []byte
	runs        []Run
	compressBuf []byte
	stored      []byte
	frame       Frame
	done        chan error
}

func newFrameJob() *frameJob {
	return &frameJob{raw: make([]byte, 0, MaxFrameSize), compressBuf: make([]byte, 0,
		MaxFrameSize+BlockSize), done: make(chan error,
		1)}
}

func (j *frameJob) appendRun(off int64, p []byte) {
	j.raw = append(j.raw, p...)
	if k := len(j.runs) - 1; k >= 0 && j.runs[k].Off+j.runs[k].Len == off {
		j.runs[k].Len += int64(len(p))
		return
	}
	j.runs = append(j.runs, Run{Off: off, Len: int64(len(p))})
}

func (j *frameJob) encode(sectioned, summed bool) (err error) {
	var ends []int
	if sectioned {
		ends = sectionEnds(j.raw)
	}
	j.stored, j.frame, err = encodeFrame(j.raw, j.compressBuf, ends, summed)
	return err
}

// workQueue passes at most limit items to workers, which process them in any order, and then to one goroutine,
// which receives them in the order in which they were submitted. All of its channels can hold every item, so
// that no send on them blocks.
type workQueue[T any] struct {
	freeItems, toProcess, inOrder chan T
	newItem                       func() T
	uncreated                     int // items that were not made yet
}

func newWorkQueue[T any](limit int, item func() T) workQueue[T] {
	return workQueue[T]{freeItems: make(chan T, limit), toProcess: make(chan T, limit), inOrder: make(chan T,
		limit), newItem: item, uncreated: limit}
}

// acquire returns a free item. One goroutine calls it.
func (l *workQueue[T]) acquire(ctx context.Context) (item T, err error) {
	select {
	case item = <-l.freeItems:
		return item, context.Cause(ctx)
	default:
	}
	if l.uncreated > 0 {
		l.uncreated--
		return l.newItem(), context.Cause(ctx)
	}
	select {
	case item = <-l.freeItems:
		return item, nil
	case <-ctx.Done():
		return item, context.Cause(ctx)
	}
}

func (l *workQueue[T]) submit(item T) {
	l.inOrder <- item
	l.toProcess <- item
}

func (l *workQueue[T]) close() {
	close(l.inOrder)
	close(l.toProcess)
}
