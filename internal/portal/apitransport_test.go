package portal

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestEndOfALog: only the end of a long log is read and shown, from the beginning of a row on.
func TestEndOfALog(t *testing.T) {
	row := strings.Repeat("x", 99) + "\n"
	for _, c := range []struct {
		text     string
		bytes    int
		rows     int
		expected string
	}{
		{"", 100, 5, ""},
		{"one", 100, 5, "one"},
		{"one\ntwo\n", 100, 5, "one\ntwo\n"},
		{"one\ntwo\n", 100, 1, "two\n"},
		{"one\ntwo\nthree", 100, 2, "two\nthree"},
		{"one\ntwo\nthree", 8, 5, "three"},
		{strings.Repeat(row, 3000) + "last", 250, 5, row + row + "last"},
		{strings.Repeat("\n", 300_000), 1000, 5, strings.Repeat("\n", 5)},
		{"\n\n\n\n\nx", 100, 2, "\nx"},
		{strings.Repeat("x", 300_005), 100, 5, strings.Repeat("x", 100)},
	} {
		end, size, err := readEnd(strings.NewReader(c.text), c.bytes)
		if err != nil || size != int64(len(c.text)) {
			t.Errorf("%.20q: %d bytes, %v", c.text, size, err)
		}
		if got := string(lastRows(end, size, c.rows)); got != c.expected {
			t.Errorf("%.20q: %.60q, want %.60q", c.text, got, c.expected)
		}
	}
}

// TestBrokenAnswers: an answer of the API that is cut off, or is too long for a page, is a failure
// that a page reports, and does not break the page.
func TestBrokenAnswers(t *testing.T) {
	line := strings.Repeat("x", 1<<20)
	written := 0
	for name, api := range map[string]http.HandlerFunc{
		"interrupted": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half an ans")
			panic(http.ErrAbortHandler)
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			for written = range 1000 {
				if _, err := io.WriteString(w, line); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
		},
	} {
		w := httptest.NewRecorder()
		Handler(Options{API: api, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
			httptest.NewRequest("GET", "/instances", nil))
		if text := w.Body.String(); w.Code != http.StatusBadGateway || !strings.Contains(text, "Action failed") ||
			!strings.Contains(text, "Request ID <code>") {
			t.Errorf("%s: %d %.400s", name, w.Code, text)
		}
	}
	if written > maxAnswer>>20 {
		t.Errorf("%d MB were taken", written)
	}
}
