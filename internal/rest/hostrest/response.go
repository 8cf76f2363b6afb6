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

// errTooManyRequests is returned when too many requests are running.
var errTooManyRequests = failure{http.StatusServiceUnavailable, "Too many concurrent requests; try again"}

// acquireSlot acquires a slot, and reports whether one was free.
func acquireSlot(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func releaseSlot(places chan struct{}) { <-places }

// acquireReportSlot waits for a slot among the readers of the inventory, for a limited time and in a short queue: jobs
// that end together send requests together.
func (s *Server) acquireReportSlot(ctx context.Context) bool {
	if acquireSlot(s.reportSlots) {
		return true
	}
	if !acquireSlot(s.reportQueue) {
		return false
	}
	defer releaseSlot(s.reportQueue)
	late := time.NewTimer(queueTimeout)
	defer late.Stop()
	select {
	case s.reportSlots <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// setWriteDeadline sets the deadline for the next write to the client.
func setWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// writeSuccess writes a complete successful response.
func (s *Server) writeSuccess(w http.ResponseWriter, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		writeEnvelope(w, http.StatusInternalServerError, api.HostEnvelope{Status: api.StatusFail, Error: err.Error()})
		return
	}
	writeEnvelope(w, http.StatusOK, api.HostEnvelope{Status: api.StatusOK, Body: raw})
}

// statusByError maps errors of the scanner to HTTP statuses.
var statusByError = []struct {
	err  error
	code int
}{
	{host.ErrBusy, http.StatusConflict},
	{host.ErrInvalidPath, http.StatusBadRequest},
	{host.ErrInvalidMark, http.StatusBadRequest},
	{host.ErrMarkNotFound, http.StatusNotFound},
	{host.ErrMarkExists, http.StatusConflict},
	{host.ErrTooManyMarks, http.StatusConflict},
	{host.ErrUnsettled, http.StatusServiceUnavailable},
	{host.ErrClosed, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable},
}

// writeError writes an error response.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[failure](err)
	if !ok {
		f = failure{http.StatusInternalServerError, err.Error()}
		for _, c := range statusByError {
			if errors.Is(err, c.err) {
				f.status = c.code
				break
			}
		}
	}
	switch f.status {
	case http.StatusInternalServerError:
		s.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", clip(r.URL.Path), "error",
			err.Error())
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="hostscan"`)
		fallthrough
	default:
		s.log.DebugContext(r.Context(), "request refused", "method", r.Method, "path", clip(r.URL.Path), "code",
			f.status, "error", f.message)
	}
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeEnvelope(w, f.status, api.HostEnvelope{Status: api.StatusFail, Error: f.message})
}

func writeEnvelope(w http.ResponseWriter, code int, a api.HostEnvelope) {
	setWriteDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(a)
}

// streamResponse lets a route stream its response. A failure before the first byte is sent as an error response. A
// later one breaks the connection, so that the client does not take the response for complete.
func (s *Server) streamResponse(w http.ResponseWriter, r *http.Request, found route, q query) {
	if q.SinceJob != "" { // before the report takes a slot: it may take long
		if err := s.opts.Host.Settle(r.Context()); err != nil {
			s.writeError(w, r, err)
			return
		}
	}
	if !s.acquireReportSlot(r.Context()) {
		s.writeError(w, r, errTooManyRequests)
		return
	}
	defer releaseSlot(s.reportSlots)
	a := &streamWriter{w: w, ctx: r.Context()}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		return
	}
	a.writeString(`{"status":"OK","body":`)
	err := found.stream(a, q)
	if err == nil {
		a.writeString(`,"error":""}` + "\n")
		err = a.flush()
	}
	switch {
	case err == nil:
	case !a.started:
		s.writeError(w, r, err)
	default:
		s.log.WarnContext(r.Context(), "sending a response failed", "path", found.path, "error", err.Error())
		panic(http.ErrAbortHandler)
	}
}

// chunkBytes is how many bytes of a response are sent at a time.
const chunkBytes = 64 << 10

// streamWriter is a response that is written in parts.
type streamWriter struct {
	w       http.ResponseWriter
	ctx     context.Context // of the request
	buf     bytes.Buffer
	started bool // something was sent
}

func (a *streamWriter) writeString(s string) { a.buf.WriteString(s) }

// writeValue adds a value.
func (a *streamWriter) writeValue(v any) error {
	e := json.NewEncoder(&a.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	if a.buf.Len() >= chunkBytes {
		return a.flush()
	}
	return nil
}

// flush sends the buffered text.
func (a *streamWriter) flush() error {
	if !a.started {
		a.w.Header().Set("Content-Type", "application/json")
	}
	a.started = true
	setWriteDeadline(a.w)
	_, err := a.w.Write(a.buf.Bytes())
	a.buf.Reset()
	return err
}

// writeList adds the elements of an iterator as a list.
func writeList[T, U any](a *streamWriter, all iter.Seq2[T, error], of func(T) U) error {
	a.writeString("[")
	sep := ""
	for item, err := range all {
		if err == nil {
			err = context.Cause(a.ctx)
		}
		if err != nil {
			return err
		}
		a.writeString(sep)
		sep = ","
		if err := a.writeValue(of(item)); err != nil {
			return err
		}
	}
	a.writeString("]")
	return nil
}

func (s *Server) newReport(q query) (*host.Report, error) {
	if q.SinceJob != "" {
		return s.opts.Host.ReportSinceMark(q.SinceJob, q.MinScore)
	}
	return s.opts.Host.Report(host.Query{Since: q.Since, MinScore: q.MinScore}), nil
}

func (s *Server) streamReport(a *streamWriter, q query) error {
	r, err := s.newReport(q)
	if err != nil {
		return err
	}
	a.writeString(`{"packages":`)
	if err := writeList(a, r.Packages(), encode.Package); err != nil {
		return err
	}
	a.writeString(`,"vulnerabilities":`)
	if err := writeList(a, r.Findings(), encode.Vulnerability); err != nil {
		return err
	}
	a.writeString("}")
	return nil
}

func (s *Server) streamPackages(a *streamWriter, q query) error {
	r, err := s.newReport(q)
	if err != nil {
		return err
	}
	return writeList(a, r.Packages(), encode.Package)
}

func (s *Server) streamVulnerabilities(a *streamWriter, q query) error {
	r, err := s.newReport(q)
	if err != nil {
		return err
	}
	return writeList(a, r.Findings(), encode.Vulnerability)
}
