package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/buildyard/buildyard/test/rig"
)

// proxy lies between our own programs and a service, and takes every call into the ledger:
// so the node link, pushes and pulls are held to the file as they are really spoken.
type proxy struct {
	address string
	server  *http.Server
	spec    *spec
	ledger  *coverage
	access  *access

	mu     sync.Mutex
	faults map[string]string // route and fault -> the first call
}

// bulk is the most bytes of a body that are kept to be looked at.
const bulk = 16 << 20

// openProxy listens on a loopback address and passes everything on to a service.
func openProxy(ctx context.Context, st *stage, service string) (*proxy, error) {
	target, err := url.Parse(service)
	if err != nil {
		return nil, err
	}
	p := &proxy{spec: st.spec, ledger: st.ledger, access: st.access, faults: map[string]string{}}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.FlushInterval = -1
	pass.Transport = passing{st.access}
	pass.ErrorLog = quiet
	pass.ModifyResponse = p.look
	p.address, p.server, err = rig.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass.ServeHTTP(w, p.keepBody(r))
	}))
	return p, err
}

// sentKey is where a request keeps its body for the look at its answer.
type sentKey struct{}

// keepBody reads the JSON of a request, so that it can be compared with the file.
func (p *proxy) keepBody(r *http.Request) *http.Request {
	route := p.spec.find(r.Method, r.URL.EscapedPath())
	if route == nil || !route.bodied() || r.ContentLength > bulk {
		return r
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, bulk))
	if err != nil {
		return r
	}
	r = r.WithContext(context.WithValue(r.Context(), sentKey{}, raw))
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return r
}

// look takes an answer with its request.
func (p *proxy) look(resp *http.Response) error {
	r := resp.Request
	route := p.spec.find(r.Method, r.URL.EscapedPath())
	if route == nil {
		p.note(r.Method+" "+r.URL.Path, "a route that the file does not have")
		return nil
	}
	a := &answer{code: resp.StatusCode, header: resp.Header}
	if a.kind() == "application/json" {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, bulk))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(raw))
		a.body = raw
		if err := a.decode(); err != nil {
			p.note(route.pattern, err.Error())
			return nil
		}
	}
	p.access.learn(a)
	sent, _ := r.Context().Value(sentKey{}).([]byte)
	x := exchange{
		who: "our own programs", route: route, answer: a, wire: true, rule: true,
		asked: route.read(r.URL.EscapedPath(), r.URL.Query(), r.Header, sent),
	}
	for _, fault := range p.ledger.take(x) {
		p.note(route.pattern, fault)
	}
	return nil
}

func (p *proxy) note(route, fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.faults[route]; !known {
		p.faults[route] = fault
	}
}

// found lists what was wrong with the calls of our own programs, one fault a route.
func (p *proxy) found() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for route, fault := range p.faults {
		out = append(out, fmt.Sprintf("our own programs: %s: %s", route, fault))
	}
	return out
}

func (p *proxy) close() { _ = p.server.Close() }
