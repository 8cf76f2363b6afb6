package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

const blockSize = 4096

// memDisk is a disk in memory, of which the blocks that are all zero have no data.
type memDisk struct {
	data []byte
	// wait is called before each read; nil: nothing.
	wait func(ctx context.Context, off int64) error
}

func newMemDisk(blocks int) *memDisk {
	d := &memDisk{data: make([]byte, blocks*blockSize-100)}
	random := rand.New(rand.NewPCG(1, uint64(blocks)))
	for at := 0; at < len(d.data); at += blockSize {
		if random.IntN(2) == 0 {
			for i := at; i < min(at+blockSize, len(d.data)); i++ {
				d.data[i] = byte(random.Uint32()) | 1
			}
		}
	}
	return d
}

func (d *memDisk) Size() int64 { return int64(len(d.data)) }

func (d *memDisk) ReadAt(ctx context.Context, p []byte, off int64) (bool, error) {
	if d.wait != nil {
		if err := d.wait(ctx, off); err != nil {
			return false, err
		}
	}
	part := d.data[off : off+int64(len(p))]
	if len(bytes.Trim(part, "\x00")) == 0 {
		return true, nil
	}
	copy(p, part)
	return false, nil
}

func (d *memDisk) Extents(off, end int64) iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		for off < end {
			next := min(end, off/blockSize*blockSize+blockSize)
			if !yield(Extent{next, len(bytes.Trim(d.data[off:next], "\x00")) > 0}) {
				return
			}
			off = next
		}
	}
}

// client is a client that says what a test tells it to.
type client struct {
	net.Conn
	t *testing.T
}

// connect begins a handshake.
func connect(t *testing.T, disk Disk) *client {
	t.Helper()
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, there, disk, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		_ = here.Close()
		<-done
	})
	_ = here.SetDeadline(time.Now().Add(time.Minute))
	c := &client{here, t}
	hello := c.read(18)
	if string(hello[:16]) != "NBDMAGICIHAVEOPT" || binary.BigEndian.Uint16(hello[16:]) != 3 {
		t.Fatalf("hello: %q", hello)
	}
	c.write(be(uint32(3)))
	return c
}

func (c *client) read(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// be encodes numbers and bytes.
func be(all ...any) (b []byte) {
	for _, v := range all {
		switch v := v.(type) {
		case uint16:
			b = binary.BigEndian.AppendUint16(b, v)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		}
	}
	return b
}

// ask sends an option and returns the answers up to the last one.
func (c *client) ask(kind uint32, data []byte) (results []uint32, last []byte) {
	c.t.Helper()
	c.write(be(uint64(optionMagic), kind, uint32(len(data)), data))
	for {
		head := c.read(20)
		if binary.BigEndian.Uint64(head) != answerMagic || binary.BigEndian.Uint32(head[8:]) != kind {
			c.t.Fatalf("answer %x", head)
		}
		result := binary.BigEndian.Uint32(head[12:])
		data := c.read(int(binary.BigEndian.Uint32(head[16:])))
		if results = append(results, result); result == answerAck || result >= 1<<31 {
			return results, last
		}
		last = data
	}
}

// goes ends the handshake as QEMU does.
func goes(t *testing.T, disk Disk) *client {
	t.Helper()
	c := connect(t, disk)
	c.ask(optionStructured, nil)
	c.ask(optionSetContext, be(uint32(0), uint32(1), uint32(len(allocationContext)), allocationContext))
	c.ask(optionGo, be(uint32(0), uint16(1), uint16(infoBlockSize)))
	return c
}

func (c *client) request(flags, kind uint16, cookie, off uint64, size uint32) {
	c.t.Helper()
	c.write(be(uint32(requestMagic), flags, kind, cookie, off, size))
}

// chunk is the reply to a request.
type chunk struct {
	kind   uint16
	cookie uint64
	data   []byte
}

func (c *client) chunk() chunk {
	c.t.Helper()
	head := c.read(20)
	if binary.BigEndian.Uint32(head) != structuredMagic || binary.BigEndian.Uint16(head[4:]) != chunkDone {
		c.t.Fatalf("chunk %x", head)
	}
	return chunk{
		binary.BigEndian.Uint16(head[6:]), binary.BigEndian.Uint64(head[8:]),
		c.read(int(binary.BigEndian.Uint32(head[16:]))),
	}
}

func TestHandshake(t *testing.T) {
	disk := newMemDisk(4)
	c := connect(t, disk)
	name := be(uint32(1), "x", uint16(0))
	for _, row := range []struct {
		kind uint32
		data []byte
		want uint32
	}{
		{1, []byte("x"), answerUnsupported},
		{3, nil, answerUnsupported},
		{11, nil, answerUnsupported},
		{optionSetContext, be(uint32(0), uint32(0)), answerInvalid}, // before STRUCTURED_REPLY
		{optionStructured, []byte{0}, answerInvalid},
		{optionStructured, nil, answerAck},
		{optionSetContext, nil, answerInvalid},
		{optionSetContext, be(uint32(0), uint32(9)), answerInvalid},
		{optionSetContext, be(uint32(0), uint32(0), "x"), answerInvalid},
		{optionSetContext, be(uint32(1), "x", uint32(0)), answerUnknown},
		{optionSetContext, be(uint32(0), uint32(1), uint32(5), "qemu:"), answerAck},
		{optionGo, be(uint32(300)), answerInvalid},
		{optionGo, name, answerUnknown},
		{optionInfo, name, answerUnknown},
	} {
		if got, _ := c.ask(row.kind, row.data); len(got) != 1 || got[0] != row.want {
			t.Errorf("option %d %x: %x, want %x", row.kind, row.data, got, row.want)
		}
	}
	got, _ := c.ask(optionSetContext, be(uint32(0), uint32(1), uint32(len(allocationContext)), allocationContext))
	if len(got) != 2 || got[0] != answerContext {
		t.Errorf("context: %x", got)
	}
	for _, kind := range []uint32{optionInfo, optionGo} {
		got, sizes := c.ask(kind, be(uint32(0), uint16(0)))
		want := be(uint16(infoBlockSize), uint32(1), uint32(preferredBytes), uint32(maxReadBytes))
		if len(got) != 3 || !bytes.Equal(sizes, want) {
			t.Errorf("option %d: %x %x", kind, got, sizes)
		}
	}
	c.request(0, commandRead, 7, 0, blockSize)
	if got := c.chunk(); got.cookie != 7 {
		t.Errorf("after GO: %v", got)
	}
}

// TestReads: reads of any place and size, answered in any order, are the bytes of the disk.
func TestReads(t *testing.T) {
	disk := newMemDisk(64)
	c := goes(t, disk)
	type part struct{ off, size int }
	asked := map[uint64]part{}
	random := rand.New(rand.NewPCG(3, 4))
	for cookie := range uint64(300) {
		off := random.IntN(len(disk.data))
		asked[cookie] = part{off, 1 + random.IntN(min(len(disk.data)-off, 40<<10))}
	}
	go func() {
		for cookie := range uint64(300) {
			p := asked[cookie]
			c.request(0, commandRead, cookie, uint64(p.off), uint32(p.size))
		}
	}()
	holes := 0
	for range 300 {
		got := c.chunk()
		p := asked[got.cookie]
		want := disk.data[p.off : p.off+p.size]
		switch {
		case got.kind == chunkHole:
			holes++
			if !bytes.Equal(got.data, be(uint64(p.off), uint32(p.size))) || len(bytes.Trim(want, "\x00")) > 0 {
				t.Fatalf("%v: hole %x", p, got.data)
			}
		case got.kind != chunkData || !bytes.Equal(got.data, be(uint64(p.off), want)):
			t.Fatalf("%v: kind %d, %d bytes", p, got.kind, len(got.data))
		}
	}
	if holes == 0 {
		t.Error("no read was of zeros alone")
	}
}

func TestSimpleReplies(t *testing.T) {
	disk := newMemDisk(8)
	c := connect(t, disk)
	c.ask(optionGo, be(uint32(0), uint16(0)))
	for off := 0; off < len(disk.data); off += 1000 {
		n := min(1000, len(disk.data)-off)
		c.request(0, commandRead, uint64(off), uint64(off), uint32(n))
		head := c.read(16)
		if !bytes.Equal(head, be(uint32(simpleMagic), uint32(0), uint64(off))) ||
			!bytes.Equal(c.read(n), disk.data[off:off+n]) {
			t.Fatalf("at %d: %x", off, head)
		}
	}
	c.request(0, commandStatus, 1, 0, 100)
	if got := c.read(16); !bytes.Equal(got, be(uint32(simpleMagic), uint32(errnoPermission), uint64(1))) {
		t.Errorf("a status without its context: %x", got)
	}
}

func TestStatus(t *testing.T) {
	disk := newMemDisk(50)
	c := goes(t, disk)
	for _, p := range []struct{ off, size int }{{0, len(disk.data)}, {100, 9000}, {len(disk.data) - 1, 1}} {
		c.request(0, commandStatus, 5, uint64(p.off), uint32(p.size))
		got := c.chunk()
		if got.kind != chunkStatus || binary.BigEndian.Uint32(got.data) != contextNumber {
			t.Fatalf("%v: %v", p, got)
		}
		at := p.off
		for e := got.data[4:]; len(e) > 0; e = e[8:] {
			size, flags := int(binary.BigEndian.Uint32(e)), binary.BigEndian.Uint32(e[4:])
			if empty := len(bytes.Trim(disk.data[at:at+size], "\x00")) == 0; empty != (flags == statusHole|statusZero) {
				t.Errorf("%v: flags %d at %d", p, flags, at)
			}
			at += size
		}
		if at != p.off+p.size {
			t.Errorf("%v ends at %d", p, at)
		}
	}
	c.request(commandFlagOne, commandStatus, 6, 0, uint32(len(disk.data)))
	if got := c.chunk(); len(got.data) != 4+8 {
		t.Errorf("one extent: %d bytes", len(got.data))
	}
}

func TestRefusedRequests(t *testing.T) {
	disk := newMemDisk(4)
	disk.wait = func(_ context.Context, off int64) error {
		if off == 1 {
			return errors.New("the registry is away")
		}
		return nil
	}
	c := goes(t, disk)
	size := uint64(len(disk.data))
	for _, row := range []struct {
		kind uint16
		off  uint64
		size uint32
		want uint32
	}{
		{1, 0, 0, errnoPermission},
		{4, 0, 512, errnoPermission},
		{6, 0, 512, errnoPermission},
		{99, 0, 512, errnoPermission},
		{commandRead, 0, 0, errnoInvalid},
		{commandRead, size, 1, errnoInvalid},
		{commandRead, size - 1, 2, errnoInvalid},
		{commandRead, 1<<64 - 1, 2, errnoInvalid},
		{commandRead, 0, 1<<32 - 1, errnoInvalid},
		{commandStatus, size, 1, errnoInvalid},
		{commandRead, 1, 1, errnoIO},
	} {
		c.request(0, row.kind, 9, row.off, row.size)
		got := c.chunk()
		if got.kind != chunkError || !bytes.Equal(got.data, be(row.want, uint16(0))) {
			t.Errorf("command %d at %d of %d: %v, want error %d", row.kind, row.off, row.size, got, row.want)
		}
	}
	large := &sizedDisk{1 << 40}
	c = goes(t, large)
	c.request(0, commandRead, 9, 0, maxReadBytes+1)
	if got := c.chunk(); got.kind != chunkError || !bytes.Equal(got.data, be(uint32(errnoOverflow), uint16(0))) {
		t.Errorf("a large read: %v", got)
	}
}

// sizedDisk is a large disk of zeros.
type sizedDisk struct{ size int64 }

func (d *sizedDisk) Size() int64                                         { return d.size }
func (d *sizedDisk) ReadAt(context.Context, []byte, int64) (bool, error) { return true, nil }
func (d *sizedDisk) Extents(_, end int64) iter.Seq[Extent] {
	return func(y func(Extent) bool) { y(Extent{end, false}) }
}

// TestWaitingReads: a read that waits delays no other one, and ends with its connection.
func TestWaitingReads(t *testing.T) {
	disk := newMemDisk(4)
	var waiting sync.WaitGroup
	waiting.Add(1)
	ended := make(chan error, 1)
	disk.wait = func(ctx context.Context, off int64) error {
		if off != 0 {
			return nil
		}
		waiting.Done()
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	c := goes(t, disk)
	c.request(0, commandRead, 1, 0, 10)
	waiting.Wait()
	for cookie := range uint64(100) {
		c.request(0, commandRead, 2+cookie, blockSize, 10)
		if got := c.chunk(); got.cookie != 2+cookie {
			t.Fatalf("reply %v", got)
		}
	}
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the read continues without its client")
	}
}

func TestProtocolErrors(t *testing.T) {
	for name, text := range map[string][]byte{
		"no option":     be(uint64(1), uint64(2)),
		"a long option": be(uint64(optionMagic), uint32(7), uint32(maxOptionBytes+1)),
	} {
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- Serve(t.Context(), there, newMemDisk(1), slog.New(slog.DiscardHandler)) }()
		_, _ = io.ReadFull(here, make([]byte, 18))
		_, _ = here.Write(append(be(uint32(3)), text...))
		if err := <-done; err == nil {
			t.Errorf("%s: no error", name)
		}
		_ = here.Close()
	}
	c := connect(t, newMemDisk(1))
	for range maxOptions {
		c.ask(99, nil)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("options without an end")
	}
}

// FuzzServe: whatever a client sends, the server ends when it leaves.
func FuzzServe(f *testing.F) {
	f.Add(be(uint32(3), uint64(optionMagic), uint32(7), uint32(6), uint32(0), uint16(0),
		uint32(requestMagic), uint16(0), uint16(0), uint64(1), uint64(0), uint32(4096)))
	f.Add(be(uint32(3), uint64(optionMagic), uint32(8), uint32(0), uint64(optionMagic), uint32(10), uint32(27),
		uint32(0), uint32(1), uint32(15), allocationContext, uint64(optionMagic), uint32(7), uint32(6), uint32(0),
		uint16(0), uint32(requestMagic), uint16(0), uint16(7), uint64(1), uint64(0), uint32(4096)))
	f.Add([]byte(strings.Repeat("x", 100)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = Serve(t.Context(), there, newMemDisk(3), slog.New(slog.DiscardHandler))
		}()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		_, _ = here.Write(sent)
		_ = here.Close()
		<-done
	})
}
