package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"

	"github.com/buildyard/buildyard/internal/reflink"
)

const (
	blockBytes   = 4 << 10
	maxRunBytes  = 1 << 20
	baseBytes    = 2 << 30   // of the disk that is changed, all of it data
	changedBytes = 512 << 20 // that the next tag changes
	copyBytes    = 4 << 20   // in one read or write
)

// run is a changed range of a disk with its new bytes.
type run struct {
	off  int64
	data []byte
}

// newRuns returns runs of 4 KiB to 1 MiB that change total bytes of a disk, in its order with equal gaps. The
// logarithms of their lengths are spread evenly. They are the same in every process.
func newRuns(diskBytes, total int64) []run {
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it has to be the same in every run
	var runs []run
	for left := total; left > 0; {
		blocks := int64(math.Pow(maxRunBytes/blockBytes, dice.Float64()))
		data := newContent(dice, min(blocks*blockBytes, left))
		runs, left = append(runs, run{data: data}), left-int64(len(data))
	}
	gap := (diskBytes - total) / int64(len(runs)) / blockBytes * blockBytes
	off := int64(0)
	for i := range runs {
		runs[i].off = off
		off += int64(len(runs[i].data)) + gap
	}
	return runs
}

// newContent returns bytes of which every second block compresses.
func newContent(dice *rand.Rand, n int64) []byte {
	data := make([]byte, n)
	for at := 0; at < len(data); at += 2 * blockBytes {
		noise(dice, data[at:min(at+blockBytes, len(data))])
		text := data[min(at+blockBytes, len(data)):min(at+2*blockBytes, len(data))]
		for i := range text {
			text[i] = 'a' + byte(dice.Uint32()%4)
		}
	}
	return data
}

// noise fills a buffer with bytes that do not compress.
func noise(dice *rand.Rand, buf []byte) {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(dice.Uint32())
	}
	_, _ = rand.NewChaCha8(seed).Read(buf) // never fails
}

// makeBase makes a disk that is full of data.
func makeBase(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	dice, buf := rand.New(rand.NewPCG(3, 4)), make([]byte, copyBytes) //nolint:gosec // the same in every run
	for off := int64(0); err == nil && off < size; off += copyBytes {
		noise(dice, buf)
		_, err = f.WriteAt(buf[:min(copyBytes, size-off)], off)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// cloneAndWrite makes a clone of a disk, writes the runs into it and syncs it: the least that a program can do
// to get the next tag.
func cloneAndWrite(base, path string, runs []run) error {
	if err := reflink.CloneFile(base, path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if _, err = f.WriteAt(r.data, r.off); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// compareFiles returns an error if two files differ.
func compareFiles(first, second string) error {
	a, err := os.Open(first)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Open(second)
	if err != nil {
		return err
	}
	defer b.Close()
	left, right := make([]byte, copyBytes), make([]byte, copyBytes)
	for off := int64(0); ; off += copyBytes {
		n, errA := a.ReadAt(left, off)
		m, errB := b.ReadAt(right, off)
		switch {
		case !bytes.Equal(left[:n], right[:m]):
			return fmt.Errorf("%s and %s differ between byte %d and %d", first, second, off, off+copyBytes)
		case errA == nil && errB == nil:
		case errors.Is(errA, io.EOF) && errors.Is(errB, io.EOF):
			return nil
		default:
			return errors.Join(errA, errB)
		}
	}
}
