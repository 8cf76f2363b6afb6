package portal

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestEndOfALog: only the end of a long log is shown, from the beginning of a row on.
func TestEndOfALog(t *testing.T) {
	row := strings.Repeat("x", 99) + "\n"
	for _, n := range []int{0, 1, maxVMLog / 100, maxVMLog/100 + 1, maxVMLog / 50} {
		text := strings.Repeat(row, n) + "the last"
		end, before := lastRows([]byte(text))
		if len(end) > maxVMLog || int(before)+len(end) != len(text) || before%100 != 0 ||
			!strings.HasSuffix(string(end), "the last") || (before == 0) != (len(text) <= maxVMLog) {
			t.Errorf("%d rows: %d bytes, %d before", n, len(end), before)
		}
	}
	if end, before := lastRows([]byte(strings.Repeat("x", maxVMLog+5))); len(end) != maxVMLog || before != 5 {
		t.Errorf("one long row: %d bytes, %d before", len(end), before)
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
