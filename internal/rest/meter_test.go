package rest

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
)

// figures reads the counts of a meter as route and code.
func figures(m *Meter) (requests map[string]float64, timed uint64) {
	requests = map[string]float64{}
	for _, f := range Families(m) {
		f.Read(&metric.Series{
			Value:        func(v float64, labels ...string) { requests[strings.Join(labels[1:], " ")] = v },
			Distribution: func(d metric.Distribution, _ ...string) { timed = d.Count },
		})
	}
	return requests, timed
}

func meteredServer(t testing.TB, m *Meter) *httptest.Server {
	t.Helper()
	routes := []Route{
		{Pattern: "GET /a", Handle: func(*Request) (any, error) { return "x", nil }},
		{Pattern: "GET /a/{id}", Handle: func(*Request) (any, error) { return nil, farm.NotFound() }},
		{Pattern: "POST /a", Handle: func(r *Request) (any, error) {
			return nil,
				farm.Errorf(farm.Code(r.Params.String("code")), "no")
		}},
		// an answer without a body
		{Pattern: "GET /hang", Waits: true, Handle: func(*Request) (any, error) { return nil, nil }},
		{Pattern: "GET /odd", HandleRaw: func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			return nil
		}},
		{Pattern: "GET /panic", Handle: func(*Request) (any, error) { panic("x") }},
		{Pattern: "GET /cut", HandleRaw: func(http.ResponseWriter, *http.Request) error {
			panic(http.ErrAbortHandler)
		}},
	}
	server := httptest.NewServer(Metered(m, routes, Handler(routes, slog.New(slog.DiscardHandler))))
	t.Cleanup(server.Close)
	return server
}

func fetch(t testing.TB, method, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody, req.Close = nil, true // an interrupted request is not sent again
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // cut off
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func TestRequestsAreCounted(t *testing.T) {
	m := NewMeter("test", nil)
	server := meteredServer(t, m)
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/a", ""},
		{"GET", "/a", ""},
		{"GET", "/a", "junk"},
		{"GET", "/a/1", ""},
		{"GET", "/a/2", ""},
		{"POST", "/a", `{"code":"busy"}`},
		{"POST", "/a", `{"code":"unauthenticated"}`},
		{"GET", "/hang", ""},
		{"GET", "/odd", ""},
		{"GET", "/panic", ""},
		{"GET", "/cut", ""},
		{"GET", "/b", ""},
		{"GET", "/b/c/d?x=1", ""},
		{"DELETE", "/a", ""},
		{"GET", "/a//1", ""},
	} {
		fetch(t, c.method, server.URL+c.path, c.body)
	}
	server.Close()
	got, timed := figures(m)
	want := map[string]float64{
		"GET /a 200": 2, "GET /a 400": 1, "GET /a/{id} 200": 2, "POST /a 429": 1, "POST /a 401": 1,
		"GET /hang 200": 1, "GET /odd other": 1, "GET /panic 500": 1, "GET /cut other": 1, "none 404": 2, "none 405": 1,
		"GET /a/{id} 404": 1, // the route of the path as it should be
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted\n%v, want\n%v", got, want)
	}
	if timed != 12 { // all but hang, odd and cut
		t.Errorf("%d were timed", timed)
	}
}

// TestCountingKeepsTheWriter: files go through it as they would without it, and deadlines can be set.
func TestCountingKeepsTheWriter(t *testing.T) {
	m := NewMeter("test", nil)
	routes := []Route{{Pattern: "GET /", HandleRaw: func(w http.ResponseWriter, _ *http.Request) error {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("no ReadFrom")
		}
		return http.NewResponseController(w).Flush()
	}}}
	server := httptest.NewServer(Metered(m, routes, Handler(routes, slog.New(slog.DiscardHandler))))
	defer server.Close()
	fetch(t, "GET", server.URL, "")
	if plain := Metered(nil, routes,
		http.NotFoundHandler()); fmt.Sprintf("%T", plain) != fmt.Sprintf("%T", http.NotFoundHandler()) ||
		len(*m.routes.Load()) != 1 {
		t.Error("without a meter there is something in between")
	}
}

// discard is a writer of answers that costs nothing.
type discard struct{ h http.Header }

func (d discard) Header() http.Header       { return d.h }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// BenchmarkGet is the cost of a request with and without its being counted.
func BenchmarkGet(b *testing.B) {
	routes := []Route{{Pattern: "GET /a", Handle: func(*Request) (any, error) { return Encoded("{}"), nil }}}
	for name, m := range map[string]*Meter{"metered": NewMeter("x", nil), "plain": nil} {
		h := Metered(m, routes, Handler(routes, slog.New(slog.DiscardHandler)))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := discard{http.Header{}}
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/a", nil)
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkGetOverConnection is the same over a connection of this machine.
func BenchmarkGetOverConnection(b *testing.B) {
	for name, m := range map[string]*Meter{"metered": NewMeter("x", nil), "plain": nil} {
		server := meteredServer(b, m)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL+"/a", nil)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkCounting measures the overhead of counting a request.
func BenchmarkCounting(b *testing.B) {
	m := NewMeter("x", nil)
	h := Metered(m, []Route{{Pattern: "GET /a"}},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/a", nil)
	r.Pattern = "GET /a"
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(discard{}, r)
	}
}

// TestMeterOfTwoPorts: what one port has counted stays when another one is added.
func TestMeterOfTwoPorts(t *testing.T) {
	m, routes := NewMeter("a", nil),
		[]Route{{Pattern: "GET /x", Permission: NoCredential, Handle: func(*Request) (any, error) { return 1, nil }}}
	handler := Handler(routes, slog.New(slog.DiscardHandler))
	for range 2 {
		Metered(m, routes, handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil))
	}
	if n := (*m.routes.Load())["GET /x"].statusCounters[0].Value(); n != 2 {
		t.Errorf("counted %v", n)
	}
}

// TestMeterSignalsRefusals: refusals of callers are signaled, and counting never waits for the reader.
func TestMeterSignalsRefusals(t *testing.T) {
	told := make(chan struct{}, 3)
	m := NewMeter("x", told)
	for _, c := range []struct{ code, want int }{
		{http.StatusOK, 0},
		{http.StatusServiceUnavailable, 0},
		{http.StatusNotFound, 0},
		{http.StatusUnauthorized, 1},
		{http.StatusForbidden, 2},
		{http.StatusTooManyRequests, 3},
		{http.StatusTooManyRequests, 3},
	} {
		if m.countRequest("GET /x", c.code, 0); len(told) != c.want {
			t.Errorf("%d values after status %d, want %d", len(told), c.code, c.want)
		}
	}
}
