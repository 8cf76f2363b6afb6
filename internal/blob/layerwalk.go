package blob

import "math"

// extent is a range of the disk in one layer, in bytes.
type extent struct {
	off, end int64
	frame    int  // that holds its bytes, or noFrame: it reads as zeros
	frameOff int  // of its first byte in the decoded frame
	discard  bool // the guest discarded it
}

const noFrame = -1

// cutBefore cuts the part before off.
func (e extent) cutBefore(off int64) extent {
	if off > e.off {
		e.frameOff += int(off - e.off)
		e.off = off
	}
	return e
}

// runDecoder reads a list of runs of an index in its encoded form.
type runDecoder struct {
	decoder   indexDecoder
	remaining int
	endBlock  int64 // end of the newest run
}

// start starts the list at p.
func (l *runDecoder) start(x *Index, p runListPosition) {
	*l = runDecoder{
		decoder: indexDecoder{buf: x.encoded, pos: p.encodedOffset}, remaining: p.runCount,
		endBlock: p.baseBlock,
	}
}

// dataWalk walks the data runs of a layer, all frames one after the other. The zero value with x set begins at
// the first.
type dataWalk struct {
	index     *Index
	nextFrame int // frame whose runs come next
	frameOff  int // of the next run in the frame before
	runs      runDecoder
}

func (w *dataWalk) next() (extent, bool) {
	if w.runs.remaining == 0 {
		if w.nextFrame == len(w.index.frames) {
			return extent{}, false
		}
		w.runs.start(w.index, w.index.runsPosition(w.nextFrame))
		w.nextFrame++
		w.frameOff = 0
	}
	l := &w.runs
	l.remaining--
	start := l.endBlock + int64(l.decoder.uvarint())
	n := int64(l.decoder.uvarint())
	l.endBlock = start + n
	run := w.index.toByteRun(start, n)
	e := extent{off: run.Off, end: run.Off + run.Len, frame: w.nextFrame - 1, frameOff: w.frameOff}
	w.frameOff += int(run.Len)
	return e, true
}

// zeroWalk walks the zero runs of a layer.
type zeroWalk struct {
	index     *Index
	nextGroup int // that comes next
	runs      runDecoder
}

func (w *zeroWalk) next() (extent, bool) {
	if w.runs.remaining == 0 {
		if w.nextGroup == len(w.index.zeroRunGroups) {
			return extent{}, false
		}
		w.runs.start(w.index, w.index.zeroRunGroups[w.nextGroup])
		w.nextGroup++
	}
	l := &w.runs
	l.remaining--
	start := l.endBlock + int64(l.decoder.uvarint())
	n := l.decoder.uvarint()
	l.endBlock = start + int64(n>>1)
	run := w.index.toByteRun(start, int64(n>>1))
	return extent{off: run.Off, end: run.Off + run.Len, frame: noFrame, discard: n&1 == 1}, true
}

// layerWalk walks all extents of a layer: its data and zero runs and, at last, the range behind its end, which
// hides the content of the layers below.
type layerWalk struct {
	dataRuns    dataWalk
	zeroRuns    zeroWalk
	nextDataRun extent
	nextZeroRun extent
	hasDataRun  bool
	hasZeroRun  bool
	tailDone    bool
}

// newLayerWalk begins with the first extent that ends behind off.
func newLayerWalk(x *Index, off int64) *layerWalk {
	w := &layerWalk{dataRuns: dataWalk{index: x}, zeroRuns: zeroWalk{index: x}}
	w.dataRuns.nextFrame = x.findRunList(len(x.frames), x.runsPosition, off)
	w.zeroRuns.nextGroup = x.findRunList(len(x.zeroRunGroups),
		func(i int) runListPosition { return x.zeroRunGroups[i] }, off)
	w.nextDataRun, w.hasDataRun = w.dataRuns.next()
	w.nextZeroRun, w.hasZeroRun = w.zeroRuns.next()
	return w
}

// next returns the next extent that ends behind off, cut to begin there at the earliest.
func (w *layerWalk) next(off int64) (extent, bool) {
	for w.hasDataRun && w.nextDataRun.end <= off {
		w.nextDataRun, w.hasDataRun = w.dataRuns.next()
	}
	for w.hasZeroRun && w.nextZeroRun.end <= off {
		w.nextZeroRun, w.hasZeroRun = w.zeroRuns.next()
	}
	var e extent
	switch {
	case w.hasDataRun && (!w.hasZeroRun || w.nextDataRun.off < w.nextZeroRun.off):
		e = w.nextDataRun
		w.nextDataRun, w.hasDataRun = w.dataRuns.next()
	case w.hasZeroRun:
		e = w.nextZeroRun
		w.nextZeroRun, w.hasZeroRun = w.zeroRuns.next()
	case w.tailDone:
		return extent{}, false
	default:
		w.tailDone = true
		e = extent{off: w.dataRuns.index.contentSize, end: math.MaxInt64, frame: noFrame}
	}
	return e.cutBefore(off), true
}
