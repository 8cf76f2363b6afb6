package download

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server starts a server on loopback.
func server(t testing.TB, serve http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	return s.URL
}

func request(t testing.TB, url string) Request {
	return Request{URL: url, Part: filepath.Join(t.TempDir(), "part"), MaxBytes: 1 << 20}
}

func TestCheckURL(t *testing.T) {
	for address, good := range map[string]bool{
		"https://example.com/x": true, "http://127.0.0.1:8080/x": true, "http://[::1]/x": true,
		"http://localhost/x":   true,
		"http://example.com/x": false, "http://10.0.0.1/x": false, "file:///etc/passwd": false,
		"https://u:p@example.com/":      false,
		"http://localhost.example.com/": false, "https:///x": false, "": false, "http://127.0.0.1.example.com/": false,
	} {
		u, err := url.Parse(address)
		check(t, err)
		if err := CheckURL(u); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestRedirects: a key does not follow a redirect to another host; other headers do.
func TestRedirects(t *testing.T) {
	var got http.Header
	other := server(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		_, _ = w.Write([]byte("content"))
	})
	hops := 0
	first := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Apikey") != "secret" {
			t.Error("the key is missing")
		}
		if hops--; hops >= 0 {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return
		}
		http.Redirect(w, r, other, http.StatusFound)
	})
	q := request(t, first)
	q.Header = http.Header{"Apikey": {"secret"}}
	_, err := new(Client).Fetch(t.Context(), q)
	check(t, err)
	if got.Get("Apikey") != "" || got.Get("Accept-Encoding") != "identity" || got.Get("User-Agent") != "buildyard" {
		t.Errorf("the other host got %v", got)
	}
	hops = 100
	if _, err := new(Client).Fetch(t.Context(), request2(q)); err == nil ||
		!strings.Contains(err.Error(), "redirected more than 5 times") {
		t.Errorf("a loop: %v", err)
	}
}

// request2 is the same request with nothing received.
func request2(q Request) Request {
	q.Part += "2"
	return q
}

// TestRetryAfter: a server that asks for too long a pause is not waited for, and the context ends a pause.
func TestRetryAfter(t *testing.T) {
	after := "3600"
	address := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := new(Client).Fetch(t.Context(), request(t, address))
	if err == nil || !strings.Contains(err.Error(), "asks to wait for 1h0m0s") {
		t.Errorf("an hour: %v", err)
	}
	after = "60"
	ended := errors.New("ended")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, ended)
	defer cancel()
	if _, err := new(Client).Fetch(ctx, request(t, address)); !errors.Is(err, ended) {
		t.Errorf("a minute: %v", err)
	}
	now := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "5": 5 * time.Second, "Sat, 01 Aug 2026 00:01:00 GMT": time.Minute,
		"Fri, 31 Jul 2026 00:01:00 GMT": 0, "99999999999999": 0,
	} {
		if got := parseRetryAfter(s, now); got != want {
			t.Errorf("%q: %s", s, got)
		}
	}
}

func TestErrorsNameTheAddressOnce(t *testing.T) {
	address := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, "/broken", http.StatusFound)
			return
		}
		panic(http.ErrAbortHandler)
	})
	c := &Client{FirstDelay: time.Millisecond}
	_, err := c.Fetch(t.Context(), request(t, address+"/broken"))
	if err == nil || strings.Count(err.Error(), address+"/broken") != 1 {
		t.Errorf("got %v", err)
	}
	_, err = c.Fetch(t.Context(), request(t, address+"/elsewhere"))
	if err == nil || !strings.Contains(err.Error(), "get "+address+"/elsewhere: ") ||
		!strings.Contains(err.Error(), "/broken") {
		t.Errorf("got %v", err)
	}
}

// TestAttempts: failures without any data end after five, others continue as long as data arrives.
func TestAttempts(t *testing.T) {
	requests := 0
	content := strings.Repeat("0123456789", 10)
	address := server(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Accept-Ranges", "bytes")
		http.ServeContent(&tenBytes{ResponseWriter: w}, r, "x", time.Time{}, strings.NewReader(content))
	})
	c := &Client{FirstDelay: time.Millisecond}
	_, err := c.Fetch(t.Context(), request(t, address+"/busy"))
	if err == nil || !strings.Contains(err.Error(), "503 Service Unavailable (after 5 attempts)") || requests != 5 {
		t.Errorf("%d requests: %v", requests, err)
	}
	requests = 0
	q := request(t, address+"/x")
	_, err = c.Fetch(t.Context(), q)
	check(t, err)
	if b, err := os.ReadFile(q.Part); err != nil || string(b) != content || requests != 10 {
		t.Errorf("%d requests: %q, %v", requests, b, err)
	}
}

// TestSlowServer: a server that sends a little now and then does not take forever.
func TestSlowServer(t *testing.T) {
	address := server(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	_, err := (&Client{Timeout: 100 * time.Millisecond}).Fetch(t.Context(), request(t, address))
	if err == nil || !strings.Contains(err.Error(), "took longer than 100ms") {
		t.Errorf("got %v", err)
	}
}

// TestLongHeaders: what a server states about a file is not stored at any length.
func TestLongHeaders(t *testing.T) {
	address := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+strings.Repeat("x", 100_000)+`"`)
	})
	r, err := new(Client).Fetch(t.Context(), request(t, address))
	if err != nil || r.Validators != (Validators{}) {
		t.Errorf("got %d bytes, %v", len(r.ETag), err)
	}
}

// tenBytes ends the connection after ten bytes of a body.
type tenBytes struct {
	http.ResponseWriter
	sent int
}

func (w *tenBytes) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b[:min(len(b), 10-w.sent)])
	if w.sent += n; w.sent == 10 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestWrongRanges: a part of another place or of another file is not appended.
func TestWrongRanges(t *testing.T) {
	for _, contentRange := range []string{"bytes 0-9/20", "bytes 5-9/21", "bytes 5-9", "", "bytes 5-9/*"} {
		n := 0
		address := server(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if n++; n == 2 {
				w.Header().Set("Content-Range", contentRange)
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write([]byte("wrong"))
				return
			}
			w.Header().Set("Content-Length", "20")
			_, _ = w.Write([]byte("01234567890123456789")[:map[bool]int{true: 5, false: 20}[n == 1]])
			_ = http.NewResponseController(w).Flush()
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
		})
		q := request(t, address)
		_, err := (&Client{FirstDelay: time.Millisecond}).Fetch(t.Context(), q)
		if b, _ := os.ReadFile(q.Part); err != nil || string(b) != "01234567890123456789" || n != 3 {
			t.Errorf("%q: %q after %d requests, %v", contentRange, b, n, err)
		}
	}
}

// FuzzPart: whatever is left next to a part, a download ends with the right content.
func FuzzPart(f *testing.F) {
	const content = "0123456789012345678901234567890123456789"
	address := server(f, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "x", time.Time{}, strings.NewReader(content))
	})
	good, err := json.Marshal(partState{URL: address, Validators: Validators{ETag: `"1"`}, Total: int64(len(content))})
	check(f, err)
	f.Add([]byte(content[:7]), good)
	f.Add([]byte("x"), []byte("{"))
	f.Add([]byte(content[:7]), []byte(`{"url":"`+address+`","etag":"\"2\"","total":-1}`))
	f.Fuzz(func(t *testing.T, left, state []byte) {
		q := request(t, address)
		if strings.HasPrefix(content, string(left)) {
			check(t, os.WriteFile(q.Part, left, 0o600))
		}
		check(t, os.WriteFile(q.Part+stateSuffix, state, 0o600))
		_, err := (&Client{FirstDelay: time.Millisecond}).Fetch(t.Context(), q)
		ours := strings.Contains(string(state), address) // the state may state another length
		if b, _ := os.ReadFile(q.Part); err == nil && string(b) != content && !ours {
			t.Errorf("got %q", b)
		}
	})
}
