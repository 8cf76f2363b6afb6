package nbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Disk is a disk that is served.
type Disk interface {
	// Size returns the size in bytes; it does not change.
	Size() int64
	// ReadAt fills p with the bytes from an offset; off and off+len(p) are within the disk. It may wait. zero reports
	// that all of them are zero: then p is not filled.
	ReadAt(ctx context.Context, p []byte, off int64) (zero bool, err error)
	// Extents yields the parts of the disk from off to end in order, without a gap: whether they have data. It does not
	// wait.
	Extents(off, end int64) iter.Seq[Extent]
}

// Extent is a part of a disk.
type Extent struct {
	End  int64 // its first byte is the End of the one before
	Data bool  // false: all of it is zero
}

const (
	handshakeTime = 30 * time.Second
	writeTime     = 5 * time.Minute // for a client to take a reply
	maxRequests   = 64              // of a connection at the same time; QEMU sends 16
	maxMemory     = 64 << 20        // bytes of the replies of a connection
)

// Serve serves a disk to one client until the client leaves, the context ends or a message breaks the protocol, and
// closes the connection. It returns nil when the client left.
func Serve(ctx context.Context, conn net.Conn, disk Disk, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	c := &connection{conn: conn, disk: disk, log: log, memory: semaphore.NewWeighted(maxMemory)}
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	goes, err := c.handshake()
	if err == nil && goes {
		_ = conn.SetDeadline(time.Time{})
		err = c.transmit(ctx, cancel)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// connection is a connection of a client.
type connection struct {
	conn       net.Conn
	disk       Disk
	log        *slog.Logger
	structured bool // replies are structured
	allocation bool // the client asks for extents
	memory     *semaphore.Weighted

	writing sync.Mutex
}

// handshake agrees with the client; goes is false when the client only asked.
func (c *connection) handshake() (goes bool, err error) {
	hello := binary.BigEndian.AppendUint64(nil, initMagic)
	hello = binary.BigEndian.AppendUint64(hello, optionMagic)
	hello = binary.BigEndian.AppendUint16(hello, flagFixedNewstyle|flagNoZeroes)
	if _, err := c.conn.Write(hello); err != nil {
		return false, err
	}
	var flags [4]byte
	if _, err := io.ReadFull(c.conn, flags[:]); err != nil {
		return false, err
	}
	if binary.BigEndian.Uint32(flags[:]) != flagFixedNewstyle|flagNoZeroes {
		return false, errProtocol
	}
	for range maxOptions {
		o, err := readOption(c.conn)
		if err != nil {
			return false, err
		}
		answers, goes := c.agree(o)
		if _, err := c.conn.Write(answers); err != nil || goes || o.kind == optionAbort {
			return goes, err
		}
	}
	return false, fmt.Errorf("more than %d options", maxOptions)
}

// agree returns the answers to an option; goes reports that the transmission begins.
func (c *connection) agree(o option) (answers []byte, goes bool) {
	invalid, ack := answer(o.kind, answerInvalid, nil), answer(o.kind, answerAck, nil)
	switch o.kind {
	case optionAbort:
		return ack, false
	case optionStructured:
		if len(o.data) > 0 {
			return invalid, false
		}
		c.structured = true
		return ack, false
	case optionSetContext:
		name, queries, ok := readExportName(o.data)
		wants, valid := wantsAllocation(queries)
		switch {
		case !ok || !valid || !c.structured:
			return invalid, false
		case name != "":
			return answer(o.kind, answerUnknown, nil), false
		}
		if c.allocation = wants; wants {
			ack = append(answer(o.kind, answerContext,
				append(binary.BigEndian.AppendUint32(nil, contextNumber), allocationContext...)), ack...)
		}
		return ack, false
	case optionInfo, optionGo:
		name, _, ok := readExportName(o.data)
		switch {
		case !ok:
			return invalid, false
		case name != "":
			return answer(o.kind, answerUnknown, nil), false
		}
		return append(c.describe(o.kind), ack...), o.kind == optionGo
	default:
		return answer(o.kind, answerUnsupported, nil), false
	}
}

// describe returns the answers that describe the disk.
func (c *connection) describe(kind uint32) []byte {
	export := binary.BigEndian.AppendUint16(nil, infoExport)
	export = binary.BigEndian.AppendUint64(export, uint64(c.disk.Size()))
	export = binary.BigEndian.AppendUint16(export, diskFlags)
	sizes := binary.BigEndian.AppendUint16(nil, infoBlockSize)
	for _, size := range []uint32{1, preferredBytes, maxReadBytes} {
		sizes = binary.BigEndian.AppendUint32(sizes, size)
	}
	return append(answer(kind, answerInfo, export), answer(kind, answerInfo, sizes)...)
}

// transmit answers requests. The reads of a connection run at the same time, since some wait and others do not.
func (c *connection) transmit(ctx context.Context, cancel context.CancelFunc) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	slots := make(chan struct{}, maxRequests)
	for {
		q, err := readRequest(c.conn)
		if err != nil || q.kind == commandDisconnect {
			return err
		}
		if errno := c.refuse(q); errno != 0 {
			if err := c.fail(q, errno); err != nil {
				return err
			}
			continue
		}
		if q.kind == commandStatus {
			if err := c.status(q); err != nil {
				return err
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		running.Go(func() {
			defer func() { <-slots }()
			if err := c.read(ctx, q); err != nil {
				cancel() // which closes the connection
			}
		})
	}
}

// refuse returns the error number of a request that cannot be answered; 0: it can.
func (c *connection) refuse(q request) uint32 {
	size := uint64(c.disk.Size())
	switch {
	case q.kind != commandRead && (q.kind != commandStatus || !c.allocation):
		return errnoPermission // nothing writes here
	case q.size == 0 || q.off > size || uint64(q.size) > size-q.off:
		return errnoInvalid
	case q.kind == commandRead && q.size > maxReadBytes:
		return errnoOverflow
	}
	return 0
}

// buffers are the buffers of replies that are not large.
var buffers = sync.Pool{New: func() any { b := make([]byte, pooledBytes); return &b }}

const pooledBytes = 256 << 10

// read answers a request for bytes.
func (c *connection) read(ctx context.Context, q request) error {
	if err := c.memory.Acquire(ctx, int64(q.size)); err != nil {
		return err
	}
	defer c.memory.Release(int64(q.size))
	var data []byte
	if q.size <= pooledBytes {
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		data = (*buffer)[:q.size]
	} else {
		data = make([]byte, q.size)
	}
	zero, err := c.disk.ReadAt(ctx, data, int64(q.off))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.log.Warn("A read of a VM failed.", "offset", q.off, "bytes", q.size, "error", err)
		return c.fail(q, errnoIO)
	}
	switch {
	case !c.structured:
		if zero {
			clear(data)
		}
		return c.send(simpleHead(nil, 0, q.cookie), data)
	case zero:
		head := chunkHead(nil, chunkHole, q.cookie, 12)
		head = binary.BigEndian.AppendUint64(head, q.off)
		return c.send(binary.BigEndian.AppendUint32(head, q.size), nil)
	default:
		head := chunkHead(nil, chunkData, q.cookie, 8+len(data))
		return c.send(binary.BigEndian.AppendUint64(head, q.off), data)
	}
}

// status answers which parts of a range have data.
func (c *connection) status(q request) error {
	out := binary.BigEndian.AppendUint32(nil, contextNumber)
	at, n := int64(q.off), 0
	most := maxExtents
	if q.flags&commandFlagOne != 0 {
		most = 1
	}
	for e := range c.disk.Extents(at, at+int64(q.size)) {
		flags := uint32(statusHole | statusZero)
		if e.Data {
			flags = 0
		}
		if e.End <= at || e.End > int64(q.off)+int64(q.size) {
			return fmt.Errorf("the extents from %d on are out of order at %d", q.off, e.End)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(e.End-at))
		out = binary.BigEndian.AppendUint32(out, flags)
		at = e.End
		if n++; n == most {
			break
		}
	}
	return c.send(append(chunkHead(nil, chunkStatus, q.cookie, len(out)), out...), nil)
}

// fail answers a request with an error.
func (c *connection) fail(q request, errno uint32) error {
	if !c.structured {
		return c.send(simpleHead(nil, errno, q.cookie), nil)
	}
	out := binary.BigEndian.AppendUint32(chunkHead(nil, chunkError, q.cookie, 6), errno)
	return c.send(binary.BigEndian.AppendUint16(out, 0), nil)
}

// send writes a reply.
func (c *connection) send(head, data []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTime))
	parts := net.Buffers{head}
	if len(data) > 0 {
		parts = append(parts, data)
	}
	_, err := parts.WriteTo(c.conn)
	return err
}
