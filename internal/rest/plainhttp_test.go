package rest

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// TestPlainHTTPOnTheTLSPort: read-only requests are redirected to https, others get an error in the envelope,
// and TLS is served as before.
func TestPlainHTTPOnTheTLSPort(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	made := httptest.NewTLSServer(nil) // for its certificate
	defer made.Close()
	secure, plain := SplitPlainHTTP(l)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: made.TLS.Certificates},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Method+" over TLS")
		}),
	}
	other := NewPlainHTTPServer()
	var work sync.WaitGroup
	work.Go(func() {
		if err := server.ServeTLS(secure, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	work.Go(func() {
		if err := other.Serve(plain); !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	client := made.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	host := l.Addr().String()
	for _, c := range []struct {
		method, url, body string
		code              int
		location          string
	}{
		{"GET", "https://" + host + "/x", "GET over TLS", 200, ""},
		{"POST", "https://" + host + "/x", "POST over TLS", 200, ""},
		{"GET", "http://" + host + "/api/v1/vm?id=a%20b", "", 307, "https://" + host + "/api/v1/vm?id=a%20b"},
		{"HEAD", "http://" + host + "/", "", 307, "https://" + host + "/"},
		{"POST", "http://" + host +
			"/x", `{"status":"FAIL","message":"This port speaks TLS: send the request to https://` + host + `"}` +
			"\n", 400, ""},
		{"DELETE", "http://" + host +
			"/x", `{"status":"FAIL","message":"This port speaks TLS: send the request to https://` + host + `"}` +
			"\n", 400, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		must(t, err)
		a, err := client.Do(r)
		must(t, err)
		text, err := io.ReadAll(a.Body)
		must(t, err)
		_ = a.Body.Close()
		if a.StatusCode != c.code || a.Header.Get("Location") != c.location || c.code != 307 && string(text) != c.body {
			t.Errorf("%s %s: %d %q %s", c.method, c.url, a.StatusCode, a.Header.Get("Location"), text)
		}
	}
	client.CloseIdleConnections()
	must(t, server.Shutdown(t.Context()))
	must(t, other.Close())
	work.Wait()
}
