package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// registryProxy is a TCP proxy before the registry. It counts the bytes that cross it, and can stop them, so that a
// case finds a transfer in the middle.
type registryProxy struct {
	listener net.Listener
	to       string       // address of the registry
	down, up atomic.Int64 // bytes to nodes, and from them

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // signaled when they change
	limit   int64      // bytes of both directions that may cross; 0 = any number
}

func openRegistryProxy(ctx context.Context, registry string) (*registryProxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &registryProxy{listener: l, to: strings.TrimPrefix(registry, "http://")}
	g.changed = sync.NewCond(&g.mu)
	go g.accept()
	return g, nil
}

func (g *registryProxy) address() string { return "http://" + g.listener.Addr().String() }

func (g *registryProxy) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.join(c)
	}
}

// join copies both directions until one of the sides closes.
func (g *registryProxy) join(c net.Conn) {
	defer func() { _ = c.Close() }()
	registry, err := net.Dial("tcp", g.to) //nolint:noctx // it ends with the connection
	if err != nil {
		return
	}
	defer func() { _ = registry.Close() }()
	done := make(chan struct{}, 2)
	for _, way := range []struct {
		to, from net.Conn
		count    *atomic.Int64
	}{{c, registry, &g.down}, {registry, c, &g.up}} {
		go func() {
			_, _ = io.Copy(io.MultiWriter(counter{g, way.count}, way.to), way.from)
			done <- struct{}{}
		}()
	}
	<-done
}

// counter counts what is written, and before that waits until it may cross.
type counter struct {
	proxy *registryProxy
	bytes *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	g := c.proxy
	g.mu.Lock()
	for g.isShutLocked() {
		g.changed.Wait()
	}
	g.mu.Unlock()
	c.bytes.Add(int64(len(b)))
	return len(b), nil
}

func (g *registryProxy) isShutLocked() bool {
	return g.limit > 0 && g.down.Load()+g.up.Load() >= g.limit
}

// isShut reports whether the bytes of shutAfter have crossed.
func (g *registryProxy) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isShutLocked()
}

// shutAfter stops all traffic after that many further bytes, until open.
func (g *registryProxy) shutAfter(bytes int64) { g.setLimit(g.down.Load() + g.up.Load() + bytes) }

func (g *registryProxy) open() { g.setLimit(0) }

func (g *registryProxy) setLimit(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = bytes
	g.changed.Broadcast()
}

func (g *registryProxy) close() error {
	g.open()
	return g.listener.Close()
}
