package fault

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestFaultyProxy: a proxy without faults forwards all bytes, and each fault is seen by the client.
func TestFaultyProxy(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 8<<10)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, want)
	}))
	defer registry.Close()
	p, err := newFaultyProxy(t.Context(), registry.URL, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.close() }()
	get := func(part bool) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if part {
			r.Header.Set("Range", "bytes=0-")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "no response"
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
	p.begin(0, 1000)
	seen := map[string]int{}
	for range 300 {
		seen[get(true)]++
		if got := get(false); got != "whole" {
			t.Errorf("a response without a part: %s", got)
		}
	}
	faults := p.faults()
	if seen["whole"] == 0 || seen["changed"] != faults[responseBit] || seen["cut"] != faults[responseCutShort] ||
		seen["503 Service Unavailable"] != faults[responseStatus] || len(seen) != 4 {
		t.Errorf("seen %v, counted %v", seen, faults)
	}
	p.setAway(true)
	if got := get(false); got != "no response" || p.faults()[registryAway] != 1 {
		t.Errorf("away: %s, %v", got, p.faults())
	}
}
