package fault

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBadLine: a line without faults forwards all bytes, and each fault is seen by the client.
func TestBadLine(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 8<<10)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, want)
	}))
	defer registry.Close()
	l, err := newBadLine(t.Context(), registry.URL, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	get := func(part bool) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if part {
			r.Header.Set("Range", "bytes=0-")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "no answer"
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return "cut"
		case resp.StatusCode != http.StatusOK:
			return resp.Status
		case string(got) != want && len(got) == len(want):
			return "changed"
		case string(got) != want:
			return "short"
		}
		return "whole"
	}
	if got := get(true); got != "whole" {
		t.Errorf("without faults: %s", got)
	}
	l.begin(0, 1000)
	seen := map[string]int{}
	for range 300 {
		seen[get(true)]++
		if got := get(false); got != "whole" {
			t.Errorf("an answer that is no part: %s", got)
		}
	}
	if seen["whole"] == 0 || seen["changed"] != l.counts[lineFlipped] || seen["cut"] != l.counts[lineCut] ||
		seen["503 Service Unavailable"] != l.counts[lineUnavailable] || len(seen) != 4 {
		t.Errorf("seen %v, counted %v", seen, l.counts)
	}
	l.setAway(true)
	if got := get(false); got != "no answer" || l.counts[lineAway] != 1 {
		t.Errorf("away: %s, %v", got, l.counts)
	}
}
