package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// name is the name of the socket in its directory, which only its owner can access.
const name = "registry.sock"

// longest is the maximum length of a socket's path that every system accepts, in bytes.
const longest = 100

// socketPath is a path under which this process can reach a socket while it is open.
type socketPath struct {
	path string
	dir  *os.File // nil: the path is short enough as it is
}

// socketPathIn returns the path of the socket in an existing directory.
func socketPathIn(dir string) (socketPath, error) {
	path := filepath.Join(dir, name)
	switch {
	case len(path) <= longest:
		return socketPath{path: path}, nil
	case runtime.GOOS != "linux":
		return socketPath{}, fmt.Errorf("data directory path too long for a socket: %s", path)
	}
	f, err := os.Open(dir)
	if err != nil {
		return socketPath{}, err
	}
	return socketPath{fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name), f}, nil
}

func (p socketPath) close() {
	if p.dir != nil {
		_ = p.dir.Close()
	}
}

// listen creates the socket again. The caller holds the lock of the node.
func listen(ctx context.Context, dir string) (net.Listener, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	at, err := socketPathIn(dir)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(at.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		at.close()
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", at.path)
	if err != nil {
		at.close()
		return nil, err
	}
	if err := os.Chmod(at.path, 0o600); err != nil {
		_ = l.Close()
		at.close()
		return nil, err
	}
	return &socket{l, at}, nil
}

// socket is a listener that keeps its socketPath open.
type socket struct {
	net.Listener
	path socketPath
}

// Close implements net.Listener; it removes the socket.
func (s *socket) Close() error {
	defer s.path.close()
	return s.Listener.Close()
}

// host is the name of the registry for clients that use Dial.
const host = "registry.buildnode"

// Base is the address of the registry for clients that use Dial.
const Base = "http://" + host

// Dialer connects Base to the proxy whose socket is in a directory, and every other address, such as
// one that a registry refers to, over the network.
func Dialer(dir string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := &net.Dialer{Timeout: dialTime}
		if address != host+":80" {
			return dialer.DialContext(ctx, network, address)
		}
		at, err := socketPathIn(dir)
		if err != nil {
			return nil, err
		}
		defer at.close()
		return dialer.DialContext(ctx, "unix", at.path)
	}
}

const dialTime = 10 * time.Second
