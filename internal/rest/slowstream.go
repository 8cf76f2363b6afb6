package rest

import (
	"net/http"
	"time"
)

// pacedStream bounds the time of writes of a handler to an HTTP/2 stream. An HTTP/2 client can hold back one
// stream without a slow connection.
type pacedStream struct {
	http.ResponseWriter
	conn              *http.ResponseController
	gracePeriod       time.Duration
	minBytesPerSecond int64
}

func newPacedStream(w http.ResponseWriter) *pacedStream {
	return &pacedStream{w, http.NewResponseController(w), readerGrace, readerRate}
}

// Write implements http.ResponseWriter.
func (s *pacedStream) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+writeStep)]
		s.setDeadline(len(part))
		var m int
		m, err = s.ResponseWriter.Write(part)
		n += m
	}
	_ = s.conn.SetWriteDeadline(time.Time{}) // a stream may be idle for long
	return n, err
}

// FlushError is for http.ResponseController.
func (s *pacedStream) FlushError() error {
	s.setDeadline(0)
	err := s.conn.Flush()
	_ = s.conn.SetWriteDeadline(time.Time{})
	return err
}

// setDeadline sets the write deadline for n bytes. The end of the handler sets it for the remaining bytes.
func (s *pacedStream) setDeadline(n int) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.gracePeriod + transferTime(int64(n), s.minBytesPerSecond)))
}

// Unwrap returns the underlying writer for http.ResponseController.
func (s *pacedStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }
