// Package porttest chooses ports for services that a test starts as processes of their own.
//
// It is test code. It does not reserve a port: a service that can listen on port 0 needs none of it.
//
// Invariant: no port is in the range from which Linux and macOS assign ports to outgoing connections, which could take
// it before the service does. A process gets a port again only after all others of the range.
package porttest

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

const (
	firstPort = 15_000
	ports     = 15_000 // Linux assigns ports from 32768 on, macOS from 49152 on
	stride    = 31     // between the first ports of two processes with successive IDs
)

var tried atomic.Int64 // number of ports

// FreeAddr returns an address of a host whose port is free now.
func FreeAddr(ctx context.Context, host string) (string, error) {
	var lc net.ListenConfig
	var err error
	for range 100 {
		port := firstPort + (int64(os.Getpid())*stride+tried.Add(1))%ports
		var l net.Listener
		if l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.FormatInt(port, 10))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}
