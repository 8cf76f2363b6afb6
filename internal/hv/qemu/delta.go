package qemu

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Geometry of the deltas, the same as that of the overlays.
const (
	deltaCluster    = 128 << 10
	deltaBlock      = 4 << 10           // subcluster: 32 a cluster
	deltaL2Entries  = deltaCluster / 16 // extended entries have 16 bytes
	deltaRefs       = deltaCluster / 2  // 16-bit counts in a refcount block
	deltaCopied     = 1 << 63
	deltaExtendedL2 = 1 << 4 // incompatible feature
	deltaHeader     = 112
)

// extent is a run of a disk's bytes as "qemu-img map" tells it. QEMU before 6.1
// leaves out what is nil then.
type extent struct {
	Start   int64  `json:"start"`
	Length  int64  `json:"length"`
	Depth   int    `json:"depth"`   // 0 = in the highest overlay
	Present *bool  `json:"present"` // in one of the overlays
	Data    *bool  `json:"data"`    // false = zero
	Offset  *int64 `json:"offset"`  // of data in its file; nil = none, or compressed
}

// check says what is wrong with an extent that follows one which ends at end.
func (e extent) check(end int64) error {
	switch {
	case e.Start != end || e.Length <= 0 || e.Depth < 0 || e.Start > 1<<50-e.Length:
		return fmt.Errorf("malformed extent at %d", e.Start)
	case e.Present == nil || e.Data == nil:
		return fmt.Errorf("the extent at %d does not say whether it is there; QEMU 6.1 or later is needed", e.Start)
	case e.Offset != nil && *e.Offset < 0:
		return fmt.Errorf("the extent at %d lies nowhere", e.Start)
	}
	return nil
}

// mapOverlays calls f for each extent of a chain of overlays, lowest first, in
// the order of the disk. What lies beneath the chain is not looked at, so an
// extent that is not present comes from there.
func mapOverlays(ctx context.Context, paths []string, f func(extent) error) error {
	var chain any
	for _, p := range paths {
		chain = map[string]any{"driver": "qcow2", "backing": chain, "file": map[string]any{"driver": "file", "filename": p, "locking": "off"}}
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, imageLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, imageTool, "map", "-U", "--output=json", "json:"+object(chain.(map[string]any)))
	cmd.Env = toolEnv()
	var text bounded
	cmd.Stderr = &text
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s map: %w", imageTool, err)
	}
	var refused error // by f
	err = eachExtent(out, func(e extent) error {
		refused = f(e)
		return refused
	})
	if err == nil { // to its end, or it would end by a broken pipe
		_, err = io.Copy(io.Discard, out)
	} else {
		cancel()
	}
	werr := cmd.Wait()
	if err != nil && errors.Is(werr, context.Canceled) {
		werr = nil // we ended it for the list's sake
	}
	switch {
	case parent.Err() != nil:
		return parent.Err()
	case refused != nil:
		return refused
	case err != nil || werr != nil:
		return fmt.Errorf("%s map: %w: %s", imageTool, cmp.Or(werr, err), legible(text.Bytes()))
	}
	return nil
}

// eachExtent reads the list that "qemu-img map" prints.
func eachExtent(r io.Reader, f func(extent) error) error {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(errors.New("no list of extents"), err)
	}
	end := int64(0)
	for d.More() {
		var e extent
		if err := d.Decode(&e); err != nil {
			return err
		}
		if err := e.check(end); err != nil {
			return err
		}
		end = e.Start + e.Length
		if err := f(e); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// deltaWriter writes a qcow2 file that names no backing file, its extents given
// in the order of the disk. Format: QEMU's docs/interop/qcow2.txt, version 3
// with extended L2 entries. Blocks that were not changed are holes in the file.
type deltaWriter struct {
	f    *os.File
	size int64 // of the disk
	next int64 // first free cluster of the file
	l1   []uint64
	buf  []byte // of a cluster

	region int64 // number of the L2 table in hand; -1 = none
	l2     []uint64
}

func newDeltaWriter(f *os.File, size int64) *deltaWriter {
	const span = deltaL2Entries * deltaCluster
	w := &deltaWriter{f: f, size: size, l1: make([]uint64, (size+span-1)/span), buf: make([]byte, deltaCluster), region: -1}
	w.next = 1 + (int64(len(w.l1))*8+deltaCluster-1)/deltaCluster
	return w
}

// add puts in one extent: zero when data is nil, else the bytes of data at its
// offset.
func (w *deltaWriter) add(ctx context.Context, e extent, data io.ReaderAt) error {
	start, end := e.Start, e.Start+e.Length
	if start%deltaBlock != 0 || (end%deltaBlock != 0 && end != w.size) {
		return fmt.Errorf("the changed range %d+%d is not made of blocks", start, e.Length)
	}
	for start < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(end, (start/deltaCluster+1)*deltaCluster) - start
		entry, err := w.entry(start / deltaCluster)
		if err != nil {
			return err
		}
		bits := blockBits(start%deltaCluster, n)
		if data == nil {
			entry[1] |= bits << 32
			start += n
			continue
		}
		if entry[0] == 0 {
			entry[0] = uint64(w.next*deltaCluster) | deltaCopied
			w.next++
		}
		entry[1] |= bits
		if err := w.copy(int64(entry[0]&^deltaCopied)+start%deltaCluster, data, *e.Offset+start-e.Start, n); err != nil {
			return err
		}
		start += n
	}
	return nil
}

// copy writes n bytes of data, at most a cluster. What lies behind its end is zero.
func (w *deltaWriter) copy(to int64, data io.ReaderAt, from, n int64) error {
	got, err := data.ReadAt(w.buf[:n], from)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(w.buf[got:n])
	_, err = w.f.WriteAt(w.buf[:n], to)
	return err
}

// blockBits has a bit for each block that a range of a cluster touches.
func blockBits(from, n int64) uint64 {
	first, last := from/deltaBlock, (from+n-1)/deltaBlock
	return (1<<(last+1) - 1) &^ (1<<first - 1)
}

// entry answers the L2 entry of a cluster of the disk: place and block bits.
func (w *deltaWriter) entry(cluster int64) ([]uint64, error) {
	if r := cluster / deltaL2Entries; r != w.region {
		if err := w.flush(); err != nil {
			return nil, err
		}
		w.region, w.l2 = r, make([]uint64, 2*deltaL2Entries)
		w.l1[r] = uint64(w.next*deltaCluster) | deltaCopied
		w.next++
	}
	i := cluster % deltaL2Entries
	return w.l2[2*i : 2*i+2], nil
}

func (w *deltaWriter) flush() error {
	if w.region < 0 {
		return nil
	}
	return w.put(int64(w.l1[w.region]&^deltaCopied), w.l2)
}

func (w *deltaWriter) put(at int64, words []uint64) error {
	b := make([]byte, 0, 8*len(words))
	for _, v := range words {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	_, err := w.f.WriteAt(b, at)
	return err
}

// finish writes the tables and the header.
func (w *deltaWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.put(deltaCluster, w.l1); err != nil {
		return err
	}
	table, blocks := w.next, int64(1)
	for blocks*deltaRefs < table+1+blocks {
		blocks++
	}
	if blocks > deltaCluster/8 {
		return errors.New("the delta is too large")
	}
	total := table + 1 + blocks
	ones := make([]byte, deltaCluster)
	for i := 1; i < len(ones); i += 2 {
		ones[i] = 1
	}
	places := make([]uint64, blocks)
	for i := range blocks {
		at := (table + 1 + i) * deltaCluster
		places[i] = uint64(at)
		used := min(total-i*deltaRefs, deltaRefs)
		if _, err := w.f.WriteAt(ones[:2*used], at); err != nil {
			return err
		}
	}
	if err := w.put(table*deltaCluster, places); err != nil {
		return err
	}
	if err := w.f.Truncate(total * deltaCluster); err != nil {
		return err
	}
	_, err := w.f.WriteAt(w.header(table), 0)
	return err
}

func (w *deltaWriter) header(table int64) []byte {
	h := make([]byte, deltaHeader)
	be := binary.BigEndian
	be.PutUint32(h[0:], qcow2Magic)
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 17) // a cluster is 1<<17 bytes
	be.PutUint64(h[24:], uint64(w.size))
	be.PutUint32(h[36:], uint32(len(w.l1)))
	be.PutUint64(h[40:], deltaCluster) // L1 table
	be.PutUint64(h[48:], uint64(table*deltaCluster))
	be.PutUint32(h[56:], 1) // clusters of the refcount table
	be.PutUint64(h[72:], deltaExtendedL2)
	be.PutUint32(h[96:], 4) // a count has 1<<4 bits
	be.PutUint32(h[100:], deltaHeader)
	return h
}
