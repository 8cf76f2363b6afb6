package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// target is the service as its credentials see it.
func (s *service) target() Target {
	return Target{Kind: s.kind, Address: s.bareAddress(), HTTP: s.http}
}

// bareAddress is the address without a user and a password that are in it.
func (s *service) bareAddress() string {
	address := *s.base
	address.User = nil
	return address.String()
}

// Authorize puts the client's credentials, if any, on a request that is sent to the service by other means than
// this package. A request to another address is refused: the credentials are not meant for it.
func (s *service) Authorize(r *http.Request) error {
	if s.creds == nil {
		return nil
	}
	if r.URL.Scheme != s.base.Scheme || r.URL.Host != s.base.Host ||
		!strings.HasPrefix(r.URL.Path+"/", s.base.Path+"/") {
		return fmt.Errorf("not sending the credentials for %s to another address, %s", s.Address(), r.URL.Redacted())
	}
	return s.creds.Authorize(r, s.target())
}

// Renew is called when the service answered 401 to a request that Authorize was called with. It reports whether
// the request may be made once more, after another call of Authorize.
func (s *service) Renew(r *http.Request) bool {
	creds, ok := s.creds.(Renewable)
	return ok && creds.Renew(r, s.target())
}

// unauthorized is the error of a call for which there are no credentials.
func (s *service) unauthorized(c call, err error) error {
	switch {
	case CodeOf(err) != "":
		return err // of the handshake, with all details
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e := s.unreachable(c, err)
		e.unsent = true
		return e
	}
	return fmt.Errorf("%s %s: credentials: %w", c.method, c.path, err)
}

// refuseUnsentStream lets a service refuse a stream before it is sent, so that another try can have it.
func (s *service) refuseUnsentStream(r *http.Request) {
	if _, ok := s.creds.(Renewable); ok && r.Body != nil {
		r.Header.Set("Expect", "100-continue")
		r.Body = &unreadStream{ReadCloser: r.Body}
	}
}

// unreadStream is a stream that can be taken back until its first read.
type unreadStream struct {
	io.ReadCloser
	state atomic.Int32
}

// States of an unreadStream; 0 is untouched.
const (
	begun int32 = 1 + iota
	takenBack
)

// Read implements io.Reader.
func (o *unreadStream) Read(p []byte) (int, error) {
	o.state.CompareAndSwap(0, begun)
	if o.state.Load() == takenBack {
		return 0, io.ErrClosedPipe
	}
	return o.ReadCloser.Read(p)
}

// Close leaves the stream open when nothing of it was read: another try may come.
func (o *unreadStream) Close() error {
	if o.state.Load() != begun {
		return nil
	}
	return o.ReadCloser.Close()
}

// canResend reports whether the body of a request can be sent once more. It takes back a stream that was not
// read yet.
func canResend(r *http.Request) bool {
	if o, ok := r.Body.(*unreadStream); ok {
		return o.state.CompareAndSwap(0, takenBack)
	}
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}
