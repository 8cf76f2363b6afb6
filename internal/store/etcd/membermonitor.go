package etcd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	monitorInterval = 500 * time.Millisecond
	monitorTimeout  = 1500 * time.Millisecond // of one probe: an idle member answers within milliseconds
)

// memberMonitor keeps calls away from members of a cluster that do not answer, or have no leader.
// A frozen or disconnected member closes no connection: calls and streams that it holds would wait
// for gRPC's own check, which takes 13 s.
//
// It may err in both directions: a call to a usable member can fail, and when no member looks usable
// all of them are used.
type memberMonitor struct {
	endpoints []string
	probe     func(ctx context.Context, endpoint string) error
	use       func(endpoints []string) // directs new calls to these
	drop      func(endpoint string)    // ends the calls that are running on connections to this
	log       *slog.Logger

	mu     sync.Mutex
	failed map[string]error // why an endpoint is not used
	inUse  []string
}

func newMemberMonitor(
	endpoints []string, probe func(context.Context, string) error, use func([]string), drop func(string),
	log *slog.Logger,
) *memberMonitor {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &memberMonitor{
		endpoints: endpoints, probe: probe, use: use, drop: drop, log: log,
		failed: map[string]error{}, inUse: slices.Clone(endpoints),
	}
}

// run probes every member until ctx ends. A single endpoint has no alternative and is not probed.
func (m *memberMonitor) run(ctx context.Context) {
	if len(m.endpoints) < 2 {
		return
	}
	var probes sync.WaitGroup
	for _, endpoint := range m.endpoints {
		probes.Go(func() { m.watchMember(ctx, endpoint) })
	}
	probes.Wait()
}

func (m *memberMonitor) watchMember(ctx context.Context, endpoint string) {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	for {
		pctx, cancel := context.WithTimeout(ctx, monitorTimeout)
		err := m.probe(pctx, endpoint)
		cancel()
		if ctx.Err() != nil {
			return
		}
		m.record(endpoint, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// record stores the result of a probe, and changes the members in use when it differs from the last.
func (m *memberMonitor) record(endpoint string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.failed[endpoint]
	switch {
	case err != nil && !known:
		m.log.Warn("etcd member not usable", "endpoint", endpoint, "error", err)
		m.failed[endpoint] = err
	case err == nil && known:
		m.log.Info("etcd member usable again", "endpoint", endpoint)
		delete(m.failed, endpoint)
	}
	wanted := m.usableLocked()
	if slices.Equal(wanted, m.inUse) {
		return
	}
	m.use(wanted)
	for _, left := range m.inUse {
		if !slices.Contains(wanted, left) {
			m.drop(left)
		}
	}
	m.inUse = wanted
}

// usableLocked returns the members without a failure; all of them when there is none.
func (m *memberMonitor) usableLocked() []string {
	usable := slices.DeleteFunc(slices.Clone(m.endpoints), func(endpoint string) bool {
		_, failed := m.failed[endpoint]
		return failed
	})
	if len(usable) == 0 {
		return slices.Clone(m.endpoints)
	}
	return usable
}

// errNoLeader is the failure of a member that is cut off from the majority of its cluster.
var errNoLeader = errors.New("it has no leader")

// memberProber asks members for their state over one connection each.
type memberProber struct {
	open func(endpoint string) (*clientv3.Client, error)

	mu      sync.Mutex
	clients map[string]*clientv3.Client
}

func newMemberProber(open func(endpoint string) (*clientv3.Client, error)) *memberProber {
	return &memberProber{open: open, clients: map[string]*clientv3.Client{}}
}

// probe returns why a member is not usable.
func (p *memberProber) probe(ctx context.Context, endpoint string) error {
	client, err := p.client(endpoint)
	if err != nil {
		return err
	}
	conn := client.ActiveConnection()
	conn.ResetConnectBackoff() // a member that is back is used immediately
	status, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	switch {
	case err != nil:
		return err
	case status.GetLeader() == 0:
		return errNoLeader
	}
	return nil
}

func (p *memberProber) client(endpoint string) (*clientv3.Client, error) {
	p.mu.Lock()
	client := p.clients[endpoint]
	p.mu.Unlock()
	if client != nil {
		return client, nil
	}
	client, err := p.open(endpoint)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[endpoint] = client
	return client, nil
}

// close ends the connections. No probe may be running.
func (p *memberProber) close() error {
	var errs []error
	for _, client := range p.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// connTracker dials the connections of a client and can close those to one address.
type connTracker struct {
	mu   sync.Mutex
	open map[string]map[*trackedConn]struct{} // address -> its open connections
}

// trackedConn leaves its tracker when it is closed.
type trackedConn struct {
	net.Conn
	tracker *connTracker
	address string
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.open[c.address], c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

// dial connects to an address as gRPC names it.
func (t *connTracker) dial(ctx context.Context, address string) (net.Conn, error) {
	network, at := "tcp", address
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		network, at = "unix", strings.TrimPrefix(path, "//")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{conn, t, address}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[string]map[*trackedConn]struct{}{}
	}
	if t.open[address] == nil {
		t.open[address] = map[*trackedConn]struct{}{}
	}
	t.open[address][tracked] = struct{}{}
	return tracked, nil
}

// drop closes the connections to an endpoint, so that what waits on them fails now.
func (t *connTracker) drop(endpoint string) {
	address := endpoint
	if at, err := url.Parse(endpoint); err == nil && at.Host != "" {
		address = at.Host
	}
	t.mu.Lock()
	var conns []*trackedConn
	for conn := range t.open[address] {
		conns = append(conns, conn)
	}
	t.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // the member does not answer: there is nothing to report
	}
}
