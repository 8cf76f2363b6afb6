package blob

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Sink receives the stored bytes of the next frame of a layer, in order. f.Offset is set, and end is the end of
// the frame's last run in the file. It must not keep the slice. Sinks are called from one goroutine.
type Sink func(f Frame, end int64, stored []byte) error

// Encode makes a layer against zeros of a file that must not change while it runs: whole blocks of zeros are
// left out. Equal files yield equal layers. Memory is bounded by 4 MiB a worker, 2 MiB and the index.
func Encode(ctx context.Context, src Source, o EncodeOptions, sink Sink) (*Index, error) {
	if !o.Parent.IsZero() {
		return nil, errors.New("a complete file has no parent layer")
	}
	return encodeFeed(ctx, &sourceFeed{data: ranges{src: src, size: o.Size}}, o, sink)
}

// EncodeChanges makes a layer against o.Parent of a disk that must not change while it runs. Blocks of zeros
// become zero runs. Memory is bounded as in Encode.
func EncodeChanges(ctx context.Context, src Changes, o EncodeOptions, sink Sink) (*Index, error) {
	if o.Parent.IsZero() {
		return nil, errors.New("encoding changes requires the parent layer")
	}
	var f changeSource = &changeFeed{src: src, size: o.Size}
	if c, ok := src.(*comparison); ok {
		if c.size != o.Size {
			return nil, fmt.Errorf("comparison has a size of %d bytes, but the disk has %d", c.size, o.Size)
		}
		f = newCompareFeed(c)
	}
	return encodeFeed(ctx, f, o, sink)
}

// encoding is a pipeline. walk finds the ranges to read, load reads batches of them in any order, and collect
// fills frames with the results, in the order of the file. pack compresses frames in any order, and deliver
// passes them to the sink in order. The fixed numbers of batches and jobs bound its memory.
type encoding struct {
	feed  changeSource
	spans workQueue[*rangeBatch]
	jobs  workQueue[*job]
	ended bool // walk has reached the end of the disk
	cur   *job // filled by collect
	build *Builder
	zeros zeroList // filled by collect; deliver uses the rest of build
}

func encodeFeed(ctx context.Context, f changeSource, o EncodeOptions, sink Sink) (*Index, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	workers := o.Workers
	if workers <= 0 {
		workers = min(4, runtime.GOMAXPROCS(0))
	}
	e := &encoding{feed: f, spans: newWorkQueue(4*workers, newRangeBatch), jobs: newWorkQueue(workers+1,
		newJob), build: NewBuilder(o)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer e.spans.close(); return e.walk(ctx) })
	group.Go(func() error { defer e.jobs.close(); return e.collect(ctx) })
	group.Go(func() error { return e.deliver(ctx, sink) })
	for range workers {
		group.Go(e.pack)
	}
	for range 2 * workers {
		group.Go(e.load)
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	e.build.zeros = e.zeros
	return e.build.Index()
}

// walk fills batches with the ranges to read.
func (e *encoding) walk(ctx context.Context) error {
	for {
		s, err := e.spans.take(ctx)
		if err != nil {
			return err
		}
		s.reset()
		more, err := e.feed.next(s)
		if err != nil || !more {
			e.ended = err == nil
			return err
		}
		e.spans.submit(s)
	}
}

func (e *encoding) load() error {
	scratch := make([]byte, spanSize)
	for s := range e.spans.work {
		s.done <- e.feed.load(s, scratch)
	}
	return nil
}

// collect puts the ranges of the batches into frames and zero runs.
func (e *encoding) collect(ctx context.Context) error {
	for s := range e.spans.order {
		if err := <-s.done; err != nil {
			return err
		}
		for _, f := range s.found {
			if f.Kind != ChangeData {
				e.zeros.add(ZeroRun{Run{f.Off, f.Len}, f.Kind == ChangeDiscard})
				continue
			}
			if err := e.fill(ctx, f.Off, f.bytes); err != nil {
				return err
			}
		}
		e.spans.free <- s
	}
	if e.ended && e.cur != nil {
		e.jobs.submit(e.cur)
	}
	return context.Cause(ctx)
}

// fill appends bytes that are at off to the current frame, and continues in the next when it is full.
func (e *encoding) fill(ctx context.Context, off int64, p []byte) error {
	for len(p) > 0 {
		if e.cur == nil {
			var err error
			if e.cur, err = e.jobs.take(ctx); err != nil {
				return err
			}
		}
		n := min(len(p), FrameSize-len(e.cur.raw))
		e.cur.add(off, p[:n])
		p, off = p[n:], off+int64(n)
		if len(e.cur.raw) == FrameSize {
			e.jobs.submit(e.cur)
			e.cur = nil
		}
	}
	return nil
}

func (e *encoding) pack() error {
	for j := range e.jobs.work {
		j.done <- j.pack()
	}
	return nil
}

func (e *encoding) deliver(ctx context.Context, sink Sink) error {
	var off int64
	for j := range e.jobs.order {
		if err := <-j.done; err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		j.frame.Offset = off
		off += int64(j.frame.Stored)
		e.build.Add(j.frame, j.runs)
		last := j.runs[len(j.runs)-1]
		if err := sink(j.frame, last.Off+last.Len, j.stored); err != nil {
			return err
		}
		j.raw, j.runs = j.raw[:0], j.runs[:0]
		e.jobs.free <- j
	}
	return nil
}

// job is a frame that is filled, packed and delivered.
type job struct {
	raw    []byte
	runs   []Run
	packed []byte
	stored []byte
	frame  Frame
	done   chan error
}

func newJob() *job {
	return &job{raw: make([]byte, 0, FrameSize), packed: make([]byte, 0, FrameSize+BlockSize), done: make(chan error,
		1)}
}

func (j *job) add(off int64, p []byte) {
	j.raw = append(j.raw, p...)
	if k := len(j.runs) - 1; k >= 0 && j.runs[k].Off+j.runs[k].Len == off {
		j.runs[k].Len += int64(len(p))
		return
	}
	j.runs = append(j.runs, Run{Off: off, Len: int64(len(p))})
}

func (j *job) pack() (err error) {
	j.stored, j.frame, err = pack(j.raw, j.packed)
	return err
}

// workQueue passes at most limit items to workers, which process them in any order, and then to one goroutine,
// which receives them in the order in which they were submitted. All of its channels can hold every item, so
// that no send on them blocks.
type workQueue[T any] struct {
	free, work, order chan T
	make              func() T
	left              int // items that were not made yet
}

func newWorkQueue[T any](limit int, item func() T) workQueue[T] {
	return workQueue[T]{free: make(chan T, limit), work: make(chan T, limit), order: make(chan T,
		limit), make: item, left: limit}
}

// take returns a free item. One goroutine calls it.
func (l *workQueue[T]) take(ctx context.Context) (item T, err error) {
	select {
	case item = <-l.free:
		return item, context.Cause(ctx)
	default:
	}
	if l.left > 0 {
		l.left--
		return l.make(), context.Cause(ctx)
	}
	select {
	case item = <-l.free:
		return item, nil
	case <-ctx.Done():
		return item, context.Cause(ctx)
	}
}

func (l *workQueue[T]) submit(item T) {
	l.order <- item
	l.work <- item
}

func (l *workQueue[T]) close() {
	close(l.order)
	close(l.work)
}
