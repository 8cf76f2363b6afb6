package hostrest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest/hostrest/encode"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// errCrowded is returned when too many requests are running.
var errCrowded = failure{http.StatusServiceUnavailable, "Too many concurrent requests; try again"}

// take acquires a slot, and reports whether one was free.
func take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(places chan struct{}) { <-places }

// takeReport waits for a slot among the readers of the inventory, for a limited time and in a short queue: jobs
// that end together send requests together.
func (s *Server) takeReport(ctx context.Context) bool {
	if take(s.reports) {
		return true
	}
	if !take(s.queue) {
		return false
	}
	defer leave(s.queue)
	late := time.NewTimer(queueTime)
	defer late.Stop()
	select {
	case s.reports <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// limitWrite sets the deadline for the next write to the client.
func limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
}

// succeed writes a complete successful response.
func (s *Server) succeed(w http.ResponseWriter, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		send(w, http.StatusInternalServerError, api.HostEnvelope{Status: api.StatusFail, Error: err.Error()})
		return
	}
	send(w, http.StatusOK, api.HostEnvelope{Status: api.StatusOK, Body: raw})
}

// codes maps errors of the scanner to HTTP statuses.
var codes = []struct {
	err  error
	code int
}{
	{host.ErrBusy, http.StatusConflict},
	{host.ErrPath, http.StatusBadRequest},
	{host.ErrClosed, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable},
}

// fail writes an error response.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[failure](err)
	if !ok {
		f = failure{http.StatusInternalServerError, err.Error()}
		for _, c := range codes {
			if errors.Is(err, c.err) {
				f.code = c.code
				break
			}
		}
	}
	switch f.code {
	case http.StatusInternalServerError:
		s.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", clipped(r.URL.Path), "error",
			err.Error())
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="hostscan"`)
		fallthrough
	default:
		s.log.DebugContext(r.Context(), "request refused", "method", r.Method, "path", clipped(r.URL.Path), "code",
			f.code, "error", f.text)
	}
	if f.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	send(w, f.code, api.HostEnvelope{Status: api.StatusFail, Error: f.text})
}

func send(w http.ResponseWriter, code int, a api.HostEnvelope) {
	limitWrite(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(a)
}

// tell lets a route stream its response. A failure before the first byte is sent as an error response. A later
// one breaks the connection, so that the client does not take the response for complete.
func (s *Server) tell(w http.ResponseWriter, r *http.Request, found route, q query) {
	if !s.takeReport(r.Context()) {
		s.fail(w, r, errCrowded)
		return
	}
	defer leave(s.reports)
	a := &answer{w: w, ctx: r.Context()}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		return
	}
	a.text(`{"status":"OK","body":`)
	err := found.tell(a, q)
	if err == nil {
		a.text(`,"error":""}` + "\n")
		err = a.flush()
	}
	switch {
	case err == nil:
	case !a.began:
		s.fail(w, r, err)
	default:
		s.log.WarnContext(r.Context(), "sending a response failed", "path", found.path, "error", err.Error())
		panic(http.ErrAbortHandler)
	}
}

// part is how many bytes of a response are sent at a time.
const part = 64 << 10

// answer is a response that is written in parts.
type answer struct {
	w     http.ResponseWriter
	ctx   context.Context // of the request
	buf   bytes.Buffer
	began bool // something was sent
}

func (a *answer) text(s string) { a.buf.WriteString(s) }

// value adds a value.
func (a *answer) value(v any) error {
	e := json.NewEncoder(&a.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	if a.buf.Len() >= part {
		return a.flush()
	}
	return nil
}

// flush sends the buffered text.
func (a *answer) flush() error {
	if !a.began {
		a.w.Header().Set("Content-Type", "application/json")
	}
	a.began = true
	limitWrite(a.w)
	_, err := a.w.Write(a.buf.Bytes())
	a.buf.Reset()
	return err
}

// list adds the elements of an iterator as a list.
func list[T, U any](a *answer, all iter.Seq2[T, error], of func(T) U) error {
	a.text("[")
	sep := ""
	for item, err := range all {
		if err == nil {
			err = context.Cause(a.ctx)
		}
		if err != nil {
			return err
		}
		a.text(sep)
		sep = ","
		if err := a.value(of(item)); err != nil {
			return err
		}
	}
	a.text("]")
	return nil
}

func (s *Server) reportOf(q query) *host.Report {
	return s.o.Host.Report(host.Query{From: q.From, MinScore: q.MinScore})
}

func (s *Server) report(a *answer, q query) error {
	a.text(`{"packages":`)
	if err := s.packages(a, q); err != nil {
		return err
	}
	a.text(`,"vulnerabilities":`)
	if err := s.vulnerabilities(a, q); err != nil {
		return err
	}
	a.text("}")
	return nil
}

func (s *Server) packages(a *answer, q query) error {
	return list(a, s.reportOf(q).Packages(), encode.Package)
}

func (s *Server) vulnerabilities(a *answer, q query) error {
	return list(a, s.reportOf(q).Findings(), encode.Vulnerability)
}
