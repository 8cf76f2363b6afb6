package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// wireBytesPerSecond is the rate of a wire of 1 Gbit/s.
const wireBytesPerSecond = 125_000_000

// wire is a network of a fixed rate that all its connections share in the direction to the client.
type wire struct {
	listeners []net.Listener

	mu   sync.Mutex // guards next
	next time.Time  // when the wire is free again
}

// connect listens on an address from which the wire leads to a server.
func (w *wire) connect(server string) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens immediately
	if err != nil {
		return "", err
	}
	w.listeners = append(w.listeners, l)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.relay(client, server)
		}
	}()
	return l.Addr().String(), nil
}

func (w *wire) close() error {
	var errs []error
	for _, l := range w.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (w *wire) relay(client net.Conn, server string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server) //nolint:noctx // it ends with its connection
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.CopyBuffer(struct{ io.Writer }{client}, pacedReader{upstream, w}, make([]byte, 128<<10))
}

// pacedReader reads at the rate of the wire.
type pacedReader struct {
	src  io.Reader
	wire *wire
}

func (p pacedReader) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if n > 0 {
		time.Sleep(p.wire.reserve(n))
	}
	return n, err
}

// reserve takes the wire for n bytes and returns how long to wait until they have passed.
func (w *wire) reserve(n int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.next.Before(now) {
		w.next = now
	}
	w.next = w.next.Add(time.Duration(n) * time.Second / wireBytesPerSecond)
	return w.next.Sub(now)
}
