// Package porttest chooses ports for services that a test starts as processes of their own.
//
// It is test code. It does not reserve a port: a service that can listen on port 0 needs none of it.
//
// Invariant: no port is one that Linux or macOS gives to outgoing connections, which could take it before the service
// does, and none is returned twice by a process.
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
	apart     = 31     // between the first ports of neighboring processes
)

var given atomic.Int64 // ports that were tried

// FreeAddr returns an address of a host whose port is free now.
func FreeAddr(ctx context.Context, host string) (string, error) {
	var lc net.ListenConfig
	var err error
	for range 100 {
		port := firstPort + (int64(os.Getpid())*apart+given.Add(1))%ports
		var l net.Listener
		if l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.FormatInt(port, 10))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}
