package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/test/rig"
)

// The disk of the rows about memory.
const (
	sparseSize  = 200 << 30
	sparseData  = 3 << 30
	sparsePiece = 64 << 10
)

// sparse pushes and pulls a huge disk that holds little, and reads how much memory the
// two ends took at most.
func (b *bench) sparse(ctx context.Context) (err error) {
	s, err := b.open(ctx, "sparse")
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	path := s.path("sparse.img")
	if err := writeSparse(ctx, path); err != nil {
		return err
	}
	pushed, err := send(ctx, order{Registry: s.registry, Template: withScattered, Tag: "sparse", Image: path})
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	dir := s.path("pull")
	if err := rig.MakeDir(dir); err != nil {
		return err
	}
	pulled, err := send(ctx, order{Registry: s.registry, Template: withScattered, Tag: "sparse", Dir: dir})
	if err != nil {
		return err
	}
	if err := checkSparse(filepath.Join(dir, diskName)); err != nil {
		return err
	}
	registry, err := peak(s.reg.PID())
	if err != nil {
		return err
	}
	b.Add(rowClientMemory, float64(max(pushed.Memory, pulled.Memory))/1e6)
	b.Note(rowClientMemory, "push %d MB in %.1f s, pull %d MB in %.1f s", pushed.Memory/1e6, pushed.Seconds,
		pulled.Memory/1e6, pulled.Seconds)
	b.Add(rowRegistryMemory, float64(registry)/1e6)
	return nil
}

// pieces returns the places of the sparse disk's data and what begins each of them.
func pieces(each func(off int64, seed uint64) error) error {
	const step = sparseSize / (sparseData / sparsePiece)
	for i := range int64(sparseData / sparsePiece) {
		if err := each(i*step/block*block, uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// piece returns the bytes of a piece: chance and, behind it, zeros but for a number.
func piece(buf []byte, seed uint64) {
	clear(buf)
	rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = rnd.Read(buf[:len(buf)/2])
	for at := len(buf) / 2; at < len(buf); at += block {
		buf[at] = byte(seed) | 1
	}
}

func writeSparse(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(sparseSize); err != nil {
		return err
	}
	buf := make([]byte, sparsePiece)
	err = pieces(func(off int64, seed uint64) error {
		piece(buf, seed)
		_, err := f.WriteAt(buf, off)
		blob.StartWriteback(f, off, sparsePiece)
		return errors.Join(err, context.Cause(ctx))
	})
	return errors.Join(err, f.Sync())
}

// checkSparse reads every range with data and checks that the rest takes no space.
func checkSparse(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Size != sparseSize || st.Blocks*512 > sparseData*11/10 {
		return fmt.Errorf("the sparse disk has %d bytes and takes %d", st.Size, st.Blocks*512)
	}
	want, got := make([]byte, sparsePiece), make([]byte, sparsePiece)
	return pieces(func(off int64, seed uint64) error {
		piece(want, seed)
		if _, err := f.ReadAt(got, off); err != nil {
			return err
		}
		if string(got) != string(want) {
			return fmt.Errorf("the sparse disk differs at %d", off)
		}
		return nil
	})
}

// peak returns the most bytes that a process had in memory.
func peak(pid int) (int64, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc does not say how much memory a process took")
}
