package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/farm"
)

// Options configure a proxy.
type Options struct {
	SocketDir       string                    // of the socket; it is created
	RegistryAddress func() string             // address of the registry; "": none
	Credentials     registrytoken.Credentials // for the registry: of the node's owner, never a registry token
	RegistryTLS     *tls.Config               // of the registry
	Logger          *slog.Logger
}

// Proxy is the local registry proxy of a node.
type Proxy struct {
	opts      Options
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
}

const (
	headerTime = dialTime
	idleTime   = time.Minute
	maxHeader  = 64 << 10 // bytes
)

// Listen creates the socket. Run serves it.
func Listen(ctx context.Context, o Options) (*Proxy, error) {
	socket, err := listen(ctx, o.SocketDir)
	if err != nil {
		return nil, err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	p := &Proxy{opts: o, listener: socket, transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.RegistryTLS, TLSHandshakeTimeout: headerTime,
		Protocols:          &protocols,
		DialContext:        (&net.Dialer{Timeout: headerTime, KeepAlive: 15 * time.Second}).DialContext,
		DisableCompression: true, MaxIdleConnsPerHost: 8, IdleConnTimeout: idleTime, ExpectContinueTimeout: time.Second,
		ReadBufferSize: 256 << 10, WriteBufferSize: 256 << 10,
	}}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Run serves the socket until the context ends. Running requests are aborted then: the user resumes
// them with the same command.
func (p *Proxy) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.server.Close() })
	defer stop()
	err := p.server.Serve(p.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close removes the socket.
func (p *Proxy) Close() error {
	p.transport.CloseIdleConnections()
	return errors.Join(p.server.Close(), ignoreClosed(p.listener.Close()))
}

// ignoreClosed ignores the error of a second close.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathAbout {
		p.serveInfo(w)
		return
	}
	to, err := p.registryURL()
	if err != nil {
		writeError(w, err)
		return
	}
	if r.Method == http.MethodConnect || r.Header["Upgrade"] != nil {
		writeError(w, farm.Invalid("request", "not a request that the registry supports"))
		return
	}
	address := to.String()
	(&httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(to)
			for name := range pr.Out.Header {
				if isIdentityHeader(name) {
					pr.Out.Header.Del(name)
				}
			}
		},
		Transport: ownerTransport{p, address}, FlushInterval: -1,
		ErrorLog:     p.server.ErrorLog,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, err) },
	}).ServeHTTP(w, r)
}

// isIdentityHeader reports whether a header identifies the caller, which the node replaces.
func isIdentityHeader(header string) bool {
	switch header {
	case "Authorization", "Cookie":
		return true
	}
	return strings.HasPrefix(header, "X-Buildyard-") || strings.HasPrefix(header, "Ssl-Client-")
}

// registryURL returns the address that requests are forwarded to.
func (p *Proxy) registryURL() (*url.URL, error) {
	u, err := url.Parse(p.opts.RegistryAddress())
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, farm.Errorf(farm.CodeUnavailable,
			"This node has not yet received the address of the registry from the controller")
	}
	u.User, u.RawQuery, u.Fragment, u.Path = nil, "", "", strings.TrimRight(u.Path, "/")
	return u, nil
}

// ownerTransport calls the registry as the owner of the node.
type ownerTransport struct {
	proxy   *Proxy
	address string
}

// RoundTrip implements http.RoundTripper. A request whose credential was rejected is repeated once
// if its body can be sent again; otherwise the client has to repeat it.
func (c ownerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	creds := c.proxy.opts.Credentials
	try := r.Clone(r.Context())
	if err := creds.Authorize(try, c.address); err != nil {
		return nil, err
	}
	resp, err := c.proxy.transport.RoundTrip(try)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !creds.Renew(try, c.address) {
		return resp, err
	}
	_ = resp.Body.Close()
	if r.Body != nil && r.Body != http.NoBody {
		return nil,
			farm.Errorf(farm.CodeUnavailable, "The registry token of this node expired during the request; try again")
	}
	try = r.Clone(r.Context())
	if err := creds.Authorize(try, c.address); err != nil {
		return nil, err
	}
	return c.proxy.transport.RoundTrip(try)
}

// writeError reports a failure of the proxy itself in the envelope of a registry.
func writeError(w http.ResponseWriter, err error) {
	code, message := http.StatusBadGateway, "The registry cannot be reached from this node"
	if e, ok := errors.AsType[*farm.Error](err); ok {
		message = e.Message
		switch e.Code {
		case farm.CodeInvalid:
			code = http.StatusBadRequest
		case farm.CodeUnauthenticated:
			code = http.StatusUnauthorized
		default:
			code = http.StatusServiceUnavailable
		}
	}
	raw, _ := json.Marshal(api.Envelope[any]{Status: api.StatusFail, Message: message}) // texts
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(raw, '\n'))
}

// pathAbout is the path at which the proxy describes itself.
const pathAbout = "/.buildnode/about"

// Info is a proxy's description of itself.
type Info struct {
	RegistryAddress string `json:"registry"` // its address; "": not known yet
	HasCredentials  bool   `json:"shows"`    // whether it has credentials for it: always, except in earlier releases
}

func (p *Proxy) serveInfo(w http.ResponseWriter) {
	raw, err := json.Marshal(Info{p.opts.RegistryAddress(), true})
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

// maxAbout limits the response of Ask, in bytes.
const maxAbout = 16 << 10

// GetInfo requests the description of the proxy whose socket is in a directory.
func GetInfo(ctx context.Context, dir string) (Info, error) {
	transport := &http.Transport{DialContext: Dialer(dir), DisableKeepAlives: true}
	var about Info
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, Base+pathAbout, nil)
	if err != nil {
		return about, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return about, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAbout))
	if err != nil {
		return about, err
	}
	return about, json.NewDecoder(bytes.NewReader(raw)).Decode(&about)
}
