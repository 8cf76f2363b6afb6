package portal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/buildyard/buildyard/client"
)

// relayedHeaders are the headers of a browser's request that are copied to its calls of the API: the
// credentials, the address, and the site of the page.
var relayedHeaders = []string{
	"Authorization", "Cookie", "Origin", "Referer", "Sec-Fetch-Mode", "Sec-Fetch-Site", "User-Agent",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
	"Ssl-Client-Cert", "Ssl-Client-Verify",
}

// apiTransport calls the API in this process, with the credentials of the portal's caller.
type apiTransport struct {
	api            http.Handler
	browserRequest *http.Request
}

// RoundTrip implements http.RoundTripper.
func (t apiTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	for _, name := range relayedHeaders {
		if values := t.browserRequest.Header.Values(name); len(values) > 0 {
			asked.Header[name] = values
		}
	}
	asked.Host, asked.RemoteAddr, asked.TLS, asked.RequestURI = t.browserRequest.Host, t.browserRequest.RemoteAddr,
		t.browserRequest.TLS, r.URL.RequestURI()
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	answer := &recordedResponse{header: http.Header{}, code: http.StatusOK}
	if !answer.run(t.api, asked) {
		return nil, errBroken
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		Status: fmt.Sprint(answer.code, " ", http.StatusText(answer.code)), StatusCode: answer.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: answer.header, Body: io.NopCloser(&answer.text), ContentLength: int64(answer.text.Len()),
	}, nil
}

// recordedResponse records a handler's response.
type recordedResponse struct {
	header        http.Header
	text          bytes.Buffer
	code          int
	headerWritten bool
}

func (a *recordedResponse) Header() http.Header { return a.header }

func (a *recordedResponse) WriteHeader(code int) {
	if !a.headerWritten && code >= http.StatusOK {
		a.code, a.headerWritten = code, true
	}
}

// Write fails once the answer exceeds maxAnswer, so that the handler stops sending a large file.
func (a *recordedResponse) Write(text []byte) (int, error) {
	a.headerWritten = true
	if a.text.Len()+len(text) > maxAnswer+1 {
		return 0, errLongAnswer
	}
	return a.text.Write(text)
}

// run runs a handler and reports whether its answer is complete. An answer is cut off, for
// instance, when the handler's own source breaks off.
func (a *recordedResponse) run(api http.Handler, r *http.Request) (whole bool) {
	defer func() {
		if caught := recover(); caught != nil && caught != http.ErrAbortHandler { //nolint:errorlint // it is that very value
			panic(caught)
		}
	}()
	api.ServeHTTP(a, r)
	return true
}

var (
	errLongAnswer = errors.New("the API response has more bytes than a page can show")
	errBroken     = errors.New("the API response was interrupted, or has more bytes than a page can show")
)

// controllerClient returns a client of the API with the credentials of the portal's caller.
func (p *portal) controllerClient(r *http.Request) (*client.Controller, error) {
	return client.NewController("http://"+inside, client.Options{
		Transport: apiTransport{p.opts.API, r}, Retries: client.NoRetries, MaxAnswer: maxAnswer,
	})
}

const (
	inside    = "controller.internal" // stands for the API of this process; nothing is connected to
	maxAnswer = 64 << 20              // bytes of an answer that a page is made of
)
