package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Source is a file to be stored: its bytes and where it has any.
type Source interface {
	io.ReaderAt
	// NextData gives the next range at or behind off that may hold anything but zeros; start == end
	// means there is none. A source that does not know answers off and its size.
	NextData(off int64) (start, end int64, err error)
}

// EncodeOptions say how a file becomes a layer.
type EncodeOptions struct {
	Kind    Kind
	Size    int64 // bytes of the file
	Workers int   // goroutines that compress; 0 means one for each processor, at most 4
}

// Sink takes the stored bytes of the next frame of a layer, in order; f.Offset is set and end is the place in
// the file behind the frame's last run. It must not keep the slice. Sinks are called from one goroutine.
type Sink func(f Frame, end int64, stored []byte) error

// Encode makes a layer against zeros of a file that nobody changes meanwhile: whole blocks of zeros are left
// out. Equal files give equal layers. Memory is bounded by 4 MiB a worker.
func Encode(ctx context.Context, src Source, o EncodeOptions, sink Sink) (*Index, error) {
	if o.Size < 0 || o.Size > MaxSize {
		return nil, fmt.Errorf("file of %d bytes is outside of the limits of a layer", o.Size)
	}
	if o.Workers <= 0 {
		o.Workers = min(4, runtime.GOMAXPROCS(0))
	}
	e := &encoding{src: src, size: o.Size, free: make(chan *job, 2*o.Workers), order: make(chan *job, 2*o.Workers), work: make(chan *job, 2*o.Workers)}
	for range cap(e.free) {
		e.free <- &job{raw: make([]byte, 0, FrameSize), packed: make([]byte, 0, FrameSize+FrameSize/8), done: make(chan error, 1)}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(e.work)
		defer close(e.order)
		return e.read(ctx)
	})
	for range o.Workers {
		group.Go(func() error { return e.pack() })
	}
	b := NewBuilder(o.Kind, o.Size)
	group.Go(func() error { return e.deliver(ctx, b, sink) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return b.Index()
}

// encoding is the pipeline: read fills jobs, pack compresses them in any order, deliver hands them on in the
// order of the file. The fixed number of jobs is its memory.
type encoding struct {
	src   Source
	size  int64
	free  chan *job
	work  chan *job
	order chan *job
}

type job struct {
	raw    []byte
	runs   []Run
	packed []byte
	stored []byte
	frame  Frame
	done   chan error
}

// read walks the data of the source and collects blocks that are not zero into jobs.
func (e *encoding) read(ctx context.Context) error {
	buf := make([]byte, FrameSize)
	var cur *job
	for off := int64(0); off < e.size; {
		start, end, err := e.src.NextData(off)
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		if start >= end {
			break
		}
		// Widened to whole blocks; what was read already is not read again.
		start = max(off, start/BlockSize*BlockSize)
		end = min(e.size, (end+BlockSize-1)/BlockSize*BlockSize)
		for off = start; off < end; {
			n := int(min(int64(len(buf)), end-off))
			if got, err := e.src.ReadAt(buf[:n], off); got < n {
				return fmt.Errorf("read at %d: %w", off, cmp.Or(noEOF(err), io.ErrUnexpectedEOF))
			}
			if cur, err = e.collect(ctx, cur, off, buf[:n]); err != nil {
				return err
			}
			off += int64(n)
		}
	}
	return e.submit(ctx, cur)
}

// noEOF makes the end of a file that shrank an error like others.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// collect appends the blocks of p, which lies at off, to the current job.
func (e *encoding) collect(ctx context.Context, cur *job, off int64, p []byte) (*job, error) {
	for len(p) > 0 {
		n := min(BlockSize, len(p))
		if bytes.Equal(p[:n], zeros[:n]) {
			p, off = p[n:], off+int64(n)
			continue
		}
		if cur != nil && len(cur.raw)+n > FrameSize {
			if err := e.submit(ctx, cur); err != nil {
				return nil, err
			}
			cur = nil
		}
		if cur == nil {
			select {
			case cur = <-e.free:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		cur.add(off, p[:n])
		p, off = p[n:], off+int64(n)
	}
	return cur, nil
}

var zeros [BlockSize]byte

func (j *job) add(off int64, block []byte) {
	j.raw = append(j.raw, block...)
	if k := len(j.runs) - 1; k >= 0 && j.runs[k].Off+j.runs[k].Len == off {
		j.runs[k].Len += int64(len(block))
		return
	}
	j.runs = append(j.runs, Run{Off: off, Len: int64(len(block))})
}

// submit gives a filled job to the workers and, in order, to deliver. Both channels hold every job there is,
// so neither send can block.
func (e *encoding) submit(ctx context.Context, j *job) error {
	if j == nil {
		return nil
	}
	e.order <- j
	e.work <- j
	return context.Cause(ctx)
}

func (e *encoding) pack() error {
	for j := range e.work {
		var err error
		j.stored, j.frame, err = pack(j.raw, j.packed)
		if j.frame.Codec == CodecZstd {
			j.packed = j.stored
		}
		j.done <- err
	}
	return nil
}

func (e *encoding) deliver(ctx context.Context, b *Builder, sink Sink) error {
	var off int64
	for j := range e.order {
		if err := <-j.done; err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		j.frame.Offset = off
		off += int64(j.frame.Stored)
		b.Add(j.frame, j.runs)
		last := j.runs[len(j.runs)-1]
		if err := sink(j.frame, last.Off+last.Len, j.stored); err != nil {
			return err
		}
		j.raw, j.runs = j.raw[:0], j.runs[:0]
		e.free <- j
	}
	return nil
}
