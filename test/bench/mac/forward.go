package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// childServer is the process of this program in the guest: it serves streams at an address.
const childServer = "serve-streams"

const (
	streamBytes = 1 << 30
	bufferBytes = 256 << 10

	// What a client wants, its first byte.
	download = 'd' // the server sends a stream
	upload   = 'u' // the client sends a stream, and the server confirms its end by a byte
)

// serveStreams serves each connection to an address until the context ends.
func serveStreams(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want an address", childServer)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", args[0])
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serveStream(c, streamBytes)
	}
}

// serveStream serves one connection. A failure is seen by the client.
func serveStream(c net.Conn, size int64) {
	defer c.Close()
	var wish [1]byte
	if _, err := io.ReadFull(c, wish[:]); err != nil {
		return
	}
	if wish[0] == download {
		_ = send(c, size)
		return
	}
	if receive(c, size) == nil {
		_, _ = c.Write(wish[:])
	}
}

// send writes so many bytes.
func send(w io.Writer, size int64) error {
	buf := make([]byte, bufferBytes)
	for size > 0 {
		n, err := w.Write(buf[:min(size, bufferBytes)])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// receive reads so many bytes.
func receive(r io.Reader, size int64) error {
	buf := make([]byte, bufferBytes)
	for size > 0 {
		n, err := r.Read(buf[:min(size, bufferBytes)])
		if size -= int64(n); err != nil && size > 0 {
			return err
		}
	}
	return nil
}

// stream transfers a stream over a new connection.
func stream(ctx context.Context, address string, wish byte, size int64) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write([]byte{wish}); err != nil {
		return err
	}
	if wish == download {
		return receive(c, size)
	}
	if err := send(c, size); err != nil {
		return err
	}
	return receive(c, 1)
}

// measureForward compares streams through the port rule with streams to the guest's own address.
func (b *bench) measureForward(ctx context.Context, g *guest) (err error) {
	direct := net.JoinHostPort(g.vm.IP, strconv.Itoa(guestPort))
	if len(g.vm.Ports) != 1 {
		return fmt.Errorf("the guest has %d forwarded ports", len(g.vm.Ports))
	}
	forwarded := net.JoinHostPort(g.vm.Ports[0].HostIP, strconv.Itoa(g.vm.Ports[0].HostPort))
	server, err := g.serve(ctx, direct)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.end()) }()

	kinds := []byte{download, upload}
	all := map[byte]*pairs{download: {}, upload: {}}
	ratios := map[byte][]float64{}
	for i := range streams {
		for _, kind := range kinds {
			through, straight, err := inTurns(i,
				timed(func() error { return stream(ctx, forwarded, kind, streamBytes) }),
				timed(func() error { return stream(ctx, direct, kind, streamBytes) }))
			if err != nil {
				return err
			}
			all[kind].add(through, straight)
			ratios[kind] = append(ratios[kind], float64(straight)/float64(through))
		}
	}
	worse := ratios[download]
	if row.Median(ratios[upload]) < row.Median(worse) {
		worse = ratios[upload]
	}
	for _, ratio := range worse {
		b.Add(rowForward, ratio)
	}
	b.Note(rowForward, "from the guest %s, to it %s", all[download], all[upload])
	b.Say("streams: from the guest %s, to it %s", all[download], all[upload])
	return nil
}

// server is the process that serves streams in the guest.
type server struct{ cmd *exec.Cmd }

// serve starts a server in the guest and waits until it accepts connections.
func (g *guest) serve(ctx context.Context, address string) (server, error) {
	self, err := os.Executable()
	if err != nil {
		return server{}, err
	}
	m := fakeMac{home: g.home}
	s := server{m.command(ctx, "exec", guestID, self, childServer, address)}
	if err := s.cmd.Start(); err != nil {
		return s, err
	}
	err = runner.Wait{What: "the server in the guest", Limit: rig.ReadyTime, Every: look}.Await(ctx,
		func() (bool, error) {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp4", address)
			if err == nil {
				err = c.Close()
			}
			return err == nil, nil
		})
	if err != nil {
		err = errors.Join(err, s.end())
	}
	return s, err
}

// end ends the server: the guest ends what its client leaves.
func (s server) end() error {
	err := s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	return err
}
