package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/agent/connection"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	searchRetryFirst = time.Second
	searchRetryMax   = 30 * time.Second
)

// Options configure Controllers. All fields but Logger are set.
type Options struct {
	DataDir  datadir.Dir
	Identity datadir.Identity
	TLS      *tls.Config  // of the node's owner
	Logger   *slog.Logger // nil: no log
}

// Controllers are the controllers of a node's cloud. As an http.RoundTripper they send requests for the controller that
// the identity names to the one that is in use.
type Controllers struct {
	opts      Options
	log       *slog.Logger
	record    atomic.Pointer[connection.Log] // nil: connections are not recorded
	trust     *Trust
	transport *http.Transport
	base      *url.URL      // of the requests: the controller that the identity names
	search    chan struct{} // held while another controller is looked for

	mu         sync.Mutex // guards the fields below
	current    *url.URL   // that requests are sent to
	cloud      datadir.Cloud
	searchFor  searchReason
	searchNext time.Time // no search begins earlier
	backoff    *retry.Backoff
}

// searchReason is why another controller is looked for.
type searchReason int

const (
	noSearch   searchReason = iota
	afterMove               // the one in use works, and is not announced any longer
	afterError              // the one in use does not answer
)

var _ http.RoundTripper = (*Controllers)(nil)

// New returns the controllers of a node. It does not connect.
func New(o Options) (*Controllers, error) {
	base, err := url.Parse(strings.TrimRight(strings.TrimSpace(o.Identity.ControllerURL), "/"))
	if err != nil {
		return nil, err
	}
	c := &Controllers{
		opts: o, log: o.Logger, trust: NewTrust(o.TLS, o.Identity.Cloud.AnnouncedCA), base: base, current: base,
		cloud: o.Identity.Cloud, search: make(chan struct{}, 1), backoff: retry.New(searchRetryFirst, searchRetryMax),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.transport = nodeapi.NewTransport(c.trust.Config(), 1)
	c.transport.DialTLSContext = c.trust.DialTLS
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteMoveLocked()
	return c, nil
}

// SetLogger replaces the log. It is called before the first request.
func (c *Controllers) SetLogger(log *slog.Logger) { c.log = log }

// SetConnectionLog sets the record of the connections from now on; nil: none.
func (c *Controllers) SetConnectionLog(l *connection.Log) { c.record.Store(l) }

// BaseURL returns the URL that requests to the controllers must have. It never changes.
func (c *Controllers) BaseURL() string { return c.base.String() }

// CloudKey returns the public key of the cloud; "": no controller has sent it yet.
func (c *Controllers) CloudKey() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cloud.Key
}

// Trust returns the certificate authorities for connections of this node.
func (c *Controllers) Trust() *Trust { return c.trust }

// RoundTrip implements http.RoundTripper. A request that fails is not repeated; the next one goes to another
// controller if one proves to be part of the cloud.
func (c *Controllers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != c.base.Scheme || r.URL.Host != c.base.Host || !strings.HasPrefix(r.URL.Path, c.base.Path) {
		return c.transport.RoundTrip(r)
	}
	c.searchIfDue(r.Context())
	c.mu.Lock()
	to := c.current
	c.mu.Unlock()
	sent := r
	if to != c.base {
		sent = r.Clone(r.Context())
		sent.Host = ""
		sent.URL.Scheme, sent.URL.Host = to.Scheme, to.Host
		sent.URL.Path, sent.URL.RawPath = to.Path+strings.TrimPrefix(r.URL.Path, c.base.Path), ""
	}
	resp, err := c.transport.RoundTrip(sent)
	switch {
	case errors.Is(err, context.Canceled):
		return resp, err
	case err != nil:
		c.record.Load().Failure(to.Redacted(), err)
		c.noteFailure(to)
		return resp, err
	case isUnavailable(resp):
		c.noteFailure(to)
	default:
		c.noteSuccess(to)
	}
	c.record.Load().Response(to.Redacted(), resp.StatusCode)
	return resp, nil
}

// isUnavailable reports whether a response is not from a controller that can serve: another one may.
func isUnavailable(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	return resp.StatusCode == http.StatusBadRequest && !isJSON // such as plain HTTP that was sent to a TLS port
}

func (c *Controllers) noteFailure(of *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of == c.current {
		c.searchFor = afterError
	}
}

func (c *Controllers) noteSuccess(of *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != c.current || c.searchFor != afterError {
		return
	}
	c.searchFor = noSearch
	c.backoff.Reset()
	c.searchNext = time.Time{}
	c.noteMoveLocked()
}

// noteMoveLocked has a search begin when the cloud announces other addresses than the one in use.
func (c *Controllers) noteMoveLocked() {
	current, err := cloudkey.CanonicalURL(c.current.String())
	if c.searchFor == noSearch && len(c.cloud.AnnouncedURLs) > 0 &&
		(err != nil || !slices.Contains(c.cloud.AnnouncedURLs, current)) {
		c.searchFor = afterMove
	}
}

// searchIfDue looks for another controller if there is a reason to. Concurrent requests continue with the present one.
func (c *Controllers) searchIfDue(ctx context.Context) {
	c.mu.Lock()
	list := c.candidatesLocked()
	due := c.searchFor != noSearch && len(list) > 0 && !time.Now().Before(c.searchNext)
	c.mu.Unlock()
	if !due {
		return
	}
	select {
	case c.search <- struct{}{}:
	default:
		return
	}
	defer func() { <-c.search }()

	found := c.firstProved(context.WithoutCancel(ctx), list)

	c.mu.Lock()
	defer c.mu.Unlock()
	if found == nil {
		c.searchNext = time.Now().Add(c.backoff.Next())
		return
	}
	c.log.Info("node uses another controller", "controller", found.Redacted(), "was", c.current.Redacted())
	c.current, c.searchFor, c.searchNext = found, noSearch, time.Time{}
	c.backoff.Reset()
	c.transport.CloseIdleConnections()
	if err := c.storeLocked(func(id *datadir.Identity) { id.ControllerURL = found.String() }); err != nil {
		c.log.Warn("storing the address of the controller failed", "error", err)
	}
	c.noteMoveLocked()
}

// candidatesLocked returns the other controllers to try, in the order of preference; none without the key of the
// cloud.
func (c *Controllers) candidatesLocked() []string {
	if c.cloud.Key == "" {
		return nil
	}
	all := slices.Clone(c.cloud.AnnouncedURLs)
	if c.searchFor != afterMove {
		all = append(all, c.cloud.ControllerURLs...)
		all = append(all, c.base.String())
	}
	current, err := cloudkey.CanonicalURL(c.current.String())
	if err != nil {
		return nil
	}
	list, err := cloudkey.CanonicalURLs(all)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list, func(one string) bool { return one == current })
}

// firstProved asks all controllers of a list and returns the first in its order that has proved to be part of the
// cloud; nil for none.
func (c *Controllers) firstProved(ctx context.Context, list []string) *url.URL {
	errs := make([]error, len(list))
	var work sync.WaitGroup
	for i, one := range list {
		work.Go(func() { errs[i] = Prove(ctx, c.identity(), c.transport, one) })
	}
	work.Wait()
	for i, one := range list {
		if errs[i] == nil {
			if found, err := url.Parse(one); err == nil {
				return found
			}
		}
		level := slog.LevelDebug
		if wrongCloud(errs[i]) {
			level = slog.LevelWarn
			c.record.Load().ProofFailure(one, errs[i])
		} else if errs[i] != nil {
			c.record.Load().Failure(one, errs[i])
		}
		c.log.Log(ctx, level, "controller cannot be used", "controller", one, "error", errs[i])
	}
	return nil
}

// identity returns the identity of the node with the present data of the cloud.
func (c *Controllers) identity() datadir.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.opts.Identity
	id.Cloud = c.cloud
	return id
}

// storeLocked changes the stored identity.
func (c *Controllers) storeLocked(change func(*datadir.Identity)) error {
	id, err := c.opts.DataDir.Identity()
	if err != nil {
		return err
	}
	if id.NodeID != c.opts.Identity.NodeID {
		return errors.New("another node's identity is stored")
	}
	change(&id)
	return c.opts.DataDir.SetIdentity(id)
}
