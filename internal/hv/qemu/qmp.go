package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	maxQMPLineBytes = 4 << 20 // longest message accepted from QEMU
	qmpTimeout      = 10 * time.Second
)

// longQMPTimeouts are commands that wait for the host's disk.
var longQMPTimeouts = map[string]time.Duration{
	"stop": 2 * time.Minute, "cont": 2 * time.Minute, "transaction": 2 * time.Minute,
}

// qmpConn is one connection to QEMU's monitor. QEMU serves one client at a
// time. Calls may come from many goroutines; serve must run in one.
type qmpConn struct {
	conn   net.Conn
	reader *bufio.Reader

	mu      sync.Mutex               // guards the fields below, and writes to c
	nextID  uint64                   // id of the next call
	pending map[uint64]chan qmpReply // call ID -> its waiter; nil when closed
}

type qmpReply struct {
	value json.RawMessage
	err   error
}

// qmpMessage is any line that QEMU sends: a greeting, a response or an event.
type qmpMessage struct {
	Greeting  json.RawMessage `json:"QMP"`
	Return    json.RawMessage `json:"return"`
	Error     *remoteError    `json:"error"`
	ID        *uint64         `json:"id"`
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp qmpTime         `json:"timestamp"` // of an event, by QEMU's clock
}

// qmpTime is when an event happened. It is the host's clock, read by QEMU.
type qmpTime struct {
	Seconds      int64 `json:"seconds"`
	Microseconds int64 `json:"microseconds"`
}

func (t qmpTime) time() time.Time { return time.Unix(t.Seconds, 1000*t.Microseconds) }

// parseQMP decodes one line. Exactly one of greeting, return, error and event is set.
func parseQMP(line []byte) (qmpMessage, error) {
	var m qmpMessage
	if err := json.Unmarshal(line, &m); err != nil {
		return qmpMessage{}, fmt.Errorf("QMP message: %w", err)
	}
	n := 0
	for _, set := range []bool{m.Greeting != nil, m.Return != nil, m.Error != nil, m.Event != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return qmpMessage{}, errors.New("QMP message of an unknown kind")
	}
	return m, nil
}

// newQMP reads the greeting and leaves negotiation mode. It owns c.
func newQMP(ctx context.Context, c net.Conn) (*qmpConn, error) {
	q := &qmpConn{conn: c, reader: bufio.NewReaderSize(c, 16<<10), pending: map[uint64]chan qmpReply{}}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := q.negotiate()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("QMP greeting: %w", err)
	}
	return q, nil
}

func (q *qmpConn) negotiate() error {
	line, err := readLine(q.reader, maxQMPLineBytes)
	if err != nil {
		return err
	}
	if m, err := parseQMP(line); err != nil || m.Greeting == nil {
		return errors.Join(errors.New("QMP greeting missing"), err)
	}
	if _, err := q.conn.Write([]byte(`{"execute":"qmp_capabilities"}` + "\n")); err != nil {
		return err
	}
	for {
		line, err := readLine(q.reader, maxQMPLineBytes)
		if err != nil {
			return err
		}
		m, err := parseQMP(line)
		switch {
		case err != nil:
			return err
		case m.Error != nil:
			return m.Error
		case m.Return != nil:
			return nil
		}
	}
}

// serve reads until the connection ends and passes each event to onEvent, which must not call q. It
// returns why the connection ended, never nil.
func (q *qmpConn) serve(onEvent func(qmpMessage)) (err error) {
	defer func() { q.fail(err) }()
	for {
		line, err := readLine(q.reader, maxQMPLineBytes)
		if err != nil {
			return err
		}
		m, err := parseQMP(line)
		switch {
		case err != nil:
			return err
		case m.Event != "":
			onEvent(m)
		case m.ID != nil:
			q.deliverReply(*m.ID, m)
		}
	}
}

func (q *qmpConn) deliverReply(id uint64, m qmpMessage) {
	q.mu.Lock()
	waiter := q.pending[id]
	delete(q.pending, id)
	q.mu.Unlock()
	if waiter == nil { // stopped waiting
		return
	}
	if m.Error != nil {
		waiter <- qmpReply{err: m.Error}
		return
	}
	waiter <- qmpReply{value: bytes.Clone(m.Return)}
}

// fail closes the connection and fails every pending call.
func (q *qmpConn) fail(err error) {
	_ = q.conn.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.pending {
		w <- qmpReply{err: fmt.Errorf("QMP connection ended: %w", err)}
	}
	q.pending = nil
}

// call runs one command, at most qmpTimeout or its longQMPTimeouts. out may be nil.
func (q *qmpConn) call(ctx context.Context, command string, args, out any) error {
	return q.exchange(ctx, command, args, out, nil)
}

// callWithFile runs a command that passes an open file to QEMU.
func (q *qmpConn) callWithFile(ctx context.Context, command string, args any, file *os.File) error {
	return q.exchange(ctx, command, args, nil, file)
}

func (q *qmpConn) exchange(ctx context.Context, command string, args, out any, file *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, max(qmpTimeout, longQMPTimeouts[command]))
	defer cancel()
	id, waiter, err := q.send(ctx, command, args, file)
	if err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	select {
	case <-ctx.Done():
		q.mu.Lock()
		delete(q.pending, id)
		q.mu.Unlock()
		return fmt.Errorf("QMP %s: %w", command, ctx.Err())
	case r := <-waiter:
		if r.err != nil {
			return fmt.Errorf("QMP %s: %w", command, r.err)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(r.value, out)
	}
}

func (q *qmpConn) send(ctx context.Context, command string, args any, file *os.File) (uint64, chan qmpReply, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending == nil {
		return 0, nil, net.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	q.nextID++
	id := q.nextID
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, args, id})
	if err != nil {
		return 0, nil, err
	}
	waiter := make(chan qmpReply, 1)
	q.pending[id] = waiter
	_ = q.conn.SetWriteDeadline(time.Now().Add(qmpTimeout))
	if err := q.write(append(b, '\n'), file); err != nil {
		_ = q.conn.Close() // half a line may have been sent
		delete(q.pending, id)
		return 0, nil, err
	}
	return id, waiter, nil
}

// write sends a line, and with its first byte the file.
func (q *qmpConn) write(line []byte, file *os.File) error {
	if file == nil {
		_, err := q.conn.Write(line)
		return err
	}
	c, ok := q.conn.(*net.UnixConn)
	if !ok {
		return errors.New("the QMP connection is not a Unix socket and cannot pass file descriptors")
	}
	n, _, err := c.WriteMsgUnix(line, syscall.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(line) {
		_, err = c.Write(line[n:])
	}
	return err
}
