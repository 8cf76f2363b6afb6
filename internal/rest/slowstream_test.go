package rest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestStreamsThatAreNotRead: over HTTP/2 the handler of a client that reads nothing ends, while one
// that reads gets everything, and streams may be idle.
func TestStreamsThatAreNotRead(t *testing.T) {
	ended := make(chan error, 1)
	const size = 16 << 20
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := newPacedStream(w)
		out.gracePeriod, out.minBytesPerSecond = 50*time.Millisecond, 1<<40
		if r.URL.Path == "/read" {
			out.gracePeriod = time.Minute
		}
		conn := http.NewResponseController(out)
		_, err := out.Write([]byte("begin"))
		if err == nil {
			err = conn.Flush()
		}
		if err == nil {
			_, err = out.Write(bytes.Repeat([]byte("x"), size))
		}
		ended <- err
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for path, whole := range map[string]bool{"/unread": false, "/read": true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		must(t, err)
		a, err := server.Client().Do(r)
		must(t, err)
		if a.ProtoMajor != 2 {
			t.Fatal("it is not HTTP/2")
		}
		if whole {
			n, err := io.Copy(io.Discard, a.Body)
			if n != size+5 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
		if err := <-ended; (err == nil) != whole {
			t.Errorf("%s: the handler's write ended with %v", path, err)
		}
		_ = a.Body.Close()
	}
}
