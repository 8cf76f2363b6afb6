package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// action is what happens to a request. The zero value forwards it.
type action struct {
	before    func()        // called before it is forwarded
	after     func()        // called when the server has responded, before the client gets the response
	status    int           // respond with this status and do not forward
	cutBody   int64         // bytes of the response's body after which the connection is cut; 0: none
	delayBody time.Duration // pause in the middle of the request's body
	lost      bool          // forward it and cut the connection without a response
}

// proxy is between clients and the S3 server. Signatures stay valid, since it keeps the host that the client named.
type proxy struct {
	server   *http.Server
	address  string
	listener net.Listener
	reverse  *httputil.ReverseProxy

	mu       sync.Mutex // guards the fields below
	rule     func(r *http.Request) action
	requests []string // method, key and names of the query's values
	bytes    int64    // of bodies of responses
}

func startProxy(server string) (*proxy, error) {
	target := &url.URL{Scheme: "http", Host: server}
	p := &proxy{}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		FlushInterval:  -1,
		ModifyResponse: p.countBody,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport: &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: 64, WriteBufferSize: 256 << 10, ReadBufferSize: 256 << 10,
		},
		BufferPool: newBufferPool(),
	}
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // it listens immediately
		return nil, err
	}
	p.address = p.listener.Addr().String()
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(p.listener) }()
	return p, nil
}

type bufferPool struct{ sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}}
}

func (b *bufferPool) Get() []byte  { return *b.Pool.Get().(*[]byte) }
func (b *bufferPool) Put(p []byte) { b.Pool.Put(&p) }

func (p *proxy) url() string { return "http://" + p.address }

func (p *proxy) close() error {
	if err := p.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// setRule sets what happens to requests; nil forwards all.
func (p *proxy) setRule(rule func(r *http.Request) action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// takeRequests returns the requests since the last call, and the bytes of responses.
func (p *proxy) takeRequests() ([]string, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, n := p.requests, p.bytes
	p.requests, p.bytes = nil, 0
	return list, n
}

func describe(r *http.Request) string {
	words := []string{r.Method, strings.TrimPrefix(r.URL.Path, "/"+bucketName+"/"+prefix+"/")}
	for name := range r.URL.Query() {
		if !strings.HasPrefix(name, "X-Amz-") {
			words = append(words, name)
		}
	}
	if r.URL.Query().Has("X-Amz-Signature") {
		words = append(words, "presigned")
	}
	return strings.Join(words, " ")
}

func (p *proxy) countBody(resp *http.Response) error {
	resp.Body = &countedBody{ReadCloser: resp.Body, proxy: p}
	return nil
}

type countedBody struct {
	io.ReadCloser
	proxy *proxy
}

func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.proxy.mu.Lock()
	c.proxy.bytes += int64(n)
	c.proxy.mu.Unlock()
	return n, err
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, describe(r))
	rule := p.rule
	p.mu.Unlock()
	var a action
	if rule != nil {
		a = rule(r)
	}
	if a.before != nil {
		a.before()
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
		return
	}
	if a.delayBody > 0 {
		r.Body = &delayedBody{ReadCloser: r.Body, ctx: r.Context(), delay: a.delayBody}
	}
	switch {
	case a.lost || a.after != nil:
		p.reverse.ServeHTTP(&heldResponse{header: http.Header{}}, r)
		if a.after != nil {
			a.after()
		}
		panic(http.ErrAbortHandler)
	case a.cutBody > 0:
		p.reverse.ServeHTTP(&cutResponse{ResponseWriter: w, left: a.cutBody}, r)
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

// delayedBody pauses before the first bytes of a body.
type delayedBody struct {
	io.ReadCloser
	ctx   context.Context
	delay time.Duration
}

func (d *delayedBody) Read(b []byte) (int, error) {
	if d.delay > 0 {
		select {
		case <-d.ctx.Done():
			return 0, d.ctx.Err()
		case <-time.After(d.delay):
		}
		d.delay = 0
	}
	return d.ReadCloser.Read(b)
}

// heldResponse takes a response that its client does not get.
type heldResponse struct{ header http.Header }

func (h *heldResponse) Header() http.Header         { return h.header }
func (h *heldResponse) Write(p []byte) (int, error) { return len(p), nil }
func (h *heldResponse) WriteHeader(int)             {}

// cutResponse cuts the connection after some bytes of the body.
type cutResponse struct {
	http.ResponseWriter
	left int64
}

func (c *cutResponse) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		if f, ok := c.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	c.left -= int64(len(p))
	return c.ResponseWriter.Write(p)
}
