package main

import (
	"context"
	"io"
	"net"
	"strconv"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

const portBase = 10000 // portfwd_base

// openPorts opens the ports of the rules, and writes those that it chose into them.
func (m *machine) openPorts(ctx context.Context, guest string) error {
	if m.Network.Mode == "bridge" || m.Network.Mode == "disconnected" {
		return nil
	}
	for i := range m.Rules {
		r := &m.Rules[i]
		l, err := r.listen(ctx)
		if err != nil {
			return err
		}
		to := net.JoinHostPort(guest, strconv.Itoa(fakeguest.ServicePort(r.GuestPort)))
		go fakeguest.Accept(ctx, l, func(ctx context.Context, c net.Conn) { forward(ctx, c, to) })
	}
	return nil
}

func (r *rule) listen(ctx context.Context) (net.Listener, error) {
	first, last := r.HostPort, r.HostPort
	if r.HostPort == 0 || r.Chosen {
		first, last, r.Chosen = portBase, 65535, true
	}
	for port := first; ; port++ {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(r.HostIP, strconv.Itoa(port)))
		if err == nil || port == last {
			r.HostPort = port
			return l, err
		}
	}
}

// forward joins a connection to the host with one to the guest.
func forward(ctx context.Context, c net.Conn, to string) {
	defer c.Close()
	guest, err := new(net.Dialer).DialContext(ctx, "tcp4", to)
	if err != nil {
		return
	}
	defer guest.Close()
	go func() {
		_, _ = io.Copy(guest, c)
		if tcp, ok := guest.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(c, guest)
}
