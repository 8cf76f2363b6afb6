package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

var errLineTooLong = errors.New("message of QEMU or its guest agent is too long")

// readLine returns the next line without its end, or errLineTooLong when it has more than limit bytes.
// The slice is valid until the next read.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(long)+len(part) > limit {
			return nil, errLineTooLong
		}
		switch {
		case err == nil && long == nil:
			return part[:len(part)-1], nil
		case err == nil:
			return append(long, part[:len(part)-1]...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		long = append(long, part...)
	}
}

// remoteError is a refusal by QEMU or by the guest agent. Its text is limited and sanitized: a
// guest may have written it.
type remoteError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (e *remoteError) Error() string { return sanitizedTail([]byte(e.Desc)) }

// dialSocket connects to a socket in a VM's directory.
func dialSocket(ctx context.Context, dir, name string) (net.Conn, error) {
	path, done, err := sockPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return c, nil
}

// listenSocket makes a socket that QEMU will serve. A client that connects before QEMU is up waits;
// when QEMU dies, the connection ends.
func listenSocket(dir, name string) (*os.File, error) {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	path, done, err := sockPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	return l.File()
}
