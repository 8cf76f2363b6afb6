package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

const (
	// maxQGALineBytes is the longest response accepted from a guest: two outputs of hv.MaxOutputBytes in
	// base64 and a reserve.
	maxQGALineBytes = 8 << 20
	qgaTimeout      = 30 * time.Second
	// minCountedResponse is the minimum size at which a response counts toward the bytes that may arrive
	// before the response to a sync.
	minCountedResponse = 4 << 10
)

// guestAgent calls the agent in one guest, one call at a time. It connects when necessary, and
// reconnects whenever it is uncertain what the guest will send next. The guest is untrusted:
// everything read is limited in size and time.
type guestAgent struct {
	dial      func(context.Context) (net.Conn, error)
	callToken chan struct{} // holds one token: the right to use the fields below
	conn      net.Conn      // nil = not connected
	reader    *bufio.Reader
}

func newGuestAgent(dial func(context.Context) (net.Conn, error)) *guestAgent {
	g := &guestAgent{dial: dial, callToken: make(chan struct{}, 1)}
	g.callToken <- struct{}{}
	return g
}

// ping proves that the agent answers.
func (g *guestAgent) ping(ctx context.Context) error { return g.call(ctx, "guest-ping", nil, nil) }

// call runs one command, at most qgaTimeout long. A *remoteError is the guest's refusal; after any
// other error, it is unknown whether the command ran.
func (g *guestAgent) call(ctx context.Context, command string, args, out any) error {
	ctx, cancel := context.WithTimeout(ctx, qgaTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.callToken:
	}
	defer func() { g.callToken <- struct{}{} }()
	err := g.exchange(ctx, command, args, out)
	var refused *remoteError
	if err != nil && !errors.As(err, &refused) {
		g.disconnect()
		if ctx.Err() != nil { // the deadline shows as an I/O error
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("guest agent: %s: %w", command, err)
	}
	return nil
}

func (g *guestAgent) exchange(ctx context.Context, command string, args, out any) error {
	if g.conn == nil {
		if err := g.connect(ctx); err != nil {
			return err
		}
	}
	conn := g.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := g.write(command, args, false); err != nil {
		return err
	}
	line, err := readLine(g.reader, maxQGALineBytes)
	if err != nil {
		return err
	}
	return parseQGA(line, out)
}

// connect opens the socket and brings both sides to a known state: the 0xff makes the guest discard
// a partial request, and its response begins with another one, after which nothing is stale. A sync
// is sent once and never polled: a port that the guest does not read would block the socket.
func (g *guestAgent) connect(ctx context.Context) error {
	c, err := g.dial(ctx)
	if err != nil {
		return err
	}
	g.conn, g.reader = c, bufio.NewReaderSize(c, 16<<10)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id := rand.Uint32() >> 1 //nolint:gosec // distinguishes responses, nothing more
	if err := g.write("guest-sync-delimited", map[string]uint32{"id": id}, true); err != nil {
		return err
	}
	for skipped := 0; skipped < 2*maxQGALineBytes; {
		n, err := skipTo(g.reader, 0xff)
		if err != nil {
			return err
		}
		skipped += n
		line, err := readLine(g.reader, maxQGALineBytes)
		if err != nil {
			return err
		}
		var got uint32
		if parseQGA(line, &got) == nil && got == id {
			return nil
		}
		skipped += max(len(line), minCountedResponse) // reading a short one costs as much
	}
	return errors.New("the guest agent did not respond to the sync command")
}

// skipTo reads up to and including the byte mark.
func skipTo(r *bufio.Reader, mark byte) (n int, err error) {
	for n < 2*maxQGALineBytes {
		b, err := r.ReadByte()
		if err != nil {
			return n, err
		}
		n++
		if b == mark {
			return n, nil
		}
	}
	return n, errLineTooLong
}

func (g *guestAgent) write(command string, args any, reset bool) error {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if reset {
		b = append([]byte{0xff}, b...)
	}
	_, err = g.conn.Write(b)
	return err
}

// disconnect ends the connection; the caller holds the turn.
func (g *guestAgent) disconnect() {
	if g.conn != nil {
		_ = g.conn.Close()
		g.conn = nil
	}
}

// close ends the connection between two calls.
func (g *guestAgent) close() {
	<-g.callToken
	g.disconnect()
	g.callToken <- struct{}{}
}

// parseQGA decodes one response into out, which may be nil.
func parseQGA(line []byte, out any) error {
	var m struct {
		Return json.RawMessage `json:"return"`
		Error  *remoteError    `json:"error"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("malformed response: %w", err)
	}
	switch {
	case m.Error != nil:
		return m.Error
	case m.Return == nil:
		return errors.New("response without a value")
	case out == nil:
		return nil
	}
	return json.Unmarshal(m.Return, out)
}
