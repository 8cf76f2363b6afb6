package forward

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// server is the state of a forwarder.
type server struct {
	dialer         Dialer
	log            *slog.Logger
	viewerPassword string // a secret

	listeners       []listener
	guests, viewers chan struct{}  // one element per open connection; their capacities are the limits
	open            sync.WaitGroup // connections
}

func newServer(d Dialer, log *slog.Logger, guestLimit int) *server {
	return &server{
		dialer: d, log: log, guests: make(chan struct{}, guestLimit), viewers: make(chan struct{}, maxViewers),
	}
}

// listener is one open port.
type listener struct {
	*net.TCPListener
	rule  hv.PortRule
	isVNC bool // it has no rule, its connections are VNC viewers
}

// listen opens all ports and fills in p. Requested ports come first, so that none is taken as an
// automatic one.
func (s *server) listen(ctx context.Context, c Config, p *Ports) error {
	p.Rules = slices.Clone(c.Rules)
	for i := range p.Rules {
		r := &p.Rules[i]
		r.Protocol = "tcp"
		if r.HostIP == "" {
			r.HostIP = hv.AnyIPv4
		}
		if r.HostPort == 0 {
			continue
		}
		l, err := listenTCP(ctx, r.HostIP, r.HostPort)
		if err != nil {
			return r.TakenPortError()
		}
		s.listeners = append(s.listeners, listener{TCPListener: l, rule: *r})
	}
	if err := s.listenVNC(ctx, c.VNC, p); err != nil {
		return err
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.HostPort != 0 {
			continue
		}
		l, err := listenFree(ctx, r.HostIP, hv.FirstHostPort, 65535)
		if err != nil {
			return err
		}
		if l == nil {
			return r.NoHostPortError()
		}
		r.HostPort = portOf(l)
		s.listeners = append(s.listeners, listener{TCPListener: l, rule: *r})
	}
	return nil
}

func (s *server) listenVNC(ctx context.Context, c *VNCConfig, p *Ports) (err error) {
	if c == nil {
		return nil
	}
	p.VNCPort = c.Port // also if it cannot be opened, so that the next attempt asks for the same
	var l *net.TCPListener
	if c.Port != 0 {
		if l, err = listenTCP(ctx, c.Listen, c.Port); err != nil {
			return hv.TakenVNCPortError(c.Port, err)
		}
	} else if l, err = listenFree(ctx, c.Listen, hv.FirstVNCPort, hv.LastVNCPort); err != nil {
		return err
	}
	if l == nil {
		return hv.NoVNCPortError()
	}
	p.VNCPort = portOf(l)
	s.listeners = append(s.listeners, listener{TCPListener: l, isVNC: true})
	return nil
}

// listenFree opens the first free port of a range. It returns nil when none is free, and an error
// when the address cannot be used at all.
func listenFree(ctx context.Context, ip string, first, last int) (*net.TCPListener, error) {
	for port := first; port <= last; port++ {
		l, err := listenTCP(ctx, ip, port)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return nil, err
		}
	}
	return nil, nil
}

// keepAlive ends connections whose peer has disappeared.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

func listenTCP(ctx context.Context, ip string, port int) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func (s *server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}
