package blob

import "math"

// extent is a range of the disk in one layer, in bytes.
type extent struct {
	off, end int64
	frame    int  // that holds its bytes, or noFrame: it reads as zeros
	at       int  // of its first byte in the decoded frame
	discard  bool // the guest discarded it
}

const noFrame = -1

// from cuts the part before off.
func (e extent) from(off int64) extent {
	if off > e.off {
		e.at += int(off - e.off)
		e.off = off
	}
	return e
}

// runList reads a list of runs of an index in its encoded form.
type runList struct {
	d     decoder
	left  int
	block int64 // end of the newest run
}

// begin starts the list at p.
func (l *runList) begin(x *Index, p place) {
	*l = runList{d: decoder{buf: x.raw, at: p.at}, left: p.count, block: p.block}
}

// dataWalk walks the data runs of a layer, all frames one after the other. The zero value with x set begins at
// the first.
type dataWalk struct {
	x     *Index
	frame int // frame whose runs come next
	at    int // of the next run in the frame before
	list  runList
}

func (w *dataWalk) next() (extent, bool) {
	if w.list.left == 0 {
		if w.frame == len(w.x.frames) {
			return extent{}, false
		}
		w.list.begin(w.x, w.x.runs(w.frame))
		w.frame++
		w.at = 0
	}
	l := &w.list
	l.left--
	start := l.block + int64(l.d.uvarint())
	n := int64(l.d.uvarint())
	l.block = start + n
	run := w.x.run(start, n)
	e := extent{off: run.Off, end: run.Off + run.Len, frame: w.frame - 1, at: w.at}
	w.at += int(run.Len)
	return e, true
}

// zeroWalk walks the zero runs of a layer.
type zeroWalk struct {
	x     *Index
	group int // that comes next
	list  runList
}

func (w *zeroWalk) next() (extent, bool) {
	if w.list.left == 0 {
		if w.group == len(w.x.zeros) {
			return extent{}, false
		}
		w.list.begin(w.x, w.x.zeros[w.group])
		w.group++
	}
	l := &w.list
	l.left--
	start := l.block + int64(l.d.uvarint())
	n := l.d.uvarint()
	l.block = start + int64(n>>1)
	run := w.x.run(start, int64(n>>1))
	return extent{off: run.Off, end: run.Off + run.Len, frame: noFrame, discard: n&1 == 1}, true
}

// layerWalk walks all extents of a layer: its data and zero runs and, at last, the range behind its end, which
// hides the content of the layers below.
type layerWalk struct {
	data  dataWalk
	zeros zeroWalk
	nextD extent
	nextZ extent
	moreD bool
	moreZ bool
	ended bool
}

// walkFrom begins with the first extent that ends behind off.
func walkFrom(x *Index, off int64) *layerWalk {
	w := &layerWalk{data: dataWalk{x: x}, zeros: zeroWalk{x: x}}
	w.data.frame = x.find(len(x.frames), x.runs, off)
	w.zeros.group = x.find(len(x.zeros), func(i int) place { return x.zeros[i] }, off)
	w.nextD, w.moreD = w.data.next()
	w.nextZ, w.moreZ = w.zeros.next()
	return w
}

// next returns the next extent that ends behind off, cut to begin there at the earliest.
func (w *layerWalk) next(off int64) (extent, bool) {
	for w.moreD && w.nextD.end <= off {
		w.nextD, w.moreD = w.data.next()
	}
	for w.moreZ && w.nextZ.end <= off {
		w.nextZ, w.moreZ = w.zeros.next()
	}
	var e extent
	switch {
	case w.moreD && (!w.moreZ || w.nextD.off < w.nextZ.off):
		e = w.nextD
		w.nextD, w.moreD = w.data.next()
	case w.moreZ:
		e = w.nextZ
		w.nextZ, w.moreZ = w.zeros.next()
	case w.ended:
		return extent{}, false
	default:
		w.ended = true
		e = extent{off: w.data.x.size, end: math.MaxInt64, frame: noFrame}
	}
	return e.from(off), true
}
