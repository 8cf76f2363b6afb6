package mirror

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

func TestFeeds(t *testing.T) {
	m := newMirror(t)
	m.sync(t, "nvd")
	m.Requests()
	m.SetFeed(2024, []upstreamtest.CVE{
		{ID: "CVE-2024-1000", Modified: upstreamtest.Day.Add(time.Hour), Product: "product"},
		{ID: "CVE-2024-1001", Modified: upstreamtest.Day.Add(time.Hour), Product: "product"},
	})
	got := m.sync(t, "nvd")
	want(t, got, "nvd", Updated)
	if asked := m.Requests(); upstreamtest.Count(asked, ".json.gz") != 1 ||
		upstreamtest.Count(asked, "2024.json.gz") != 1 {
		t.Errorf("requested were %q", asked)
	}
	if n := got["nvd"].State.Records(); n != 6 {
		t.Errorf("%d records", n)
	}

	// A feed that is published between the requests of its two files.
	content := []upstreamtest.CVE{{ID: "CVE-2023-1000", Modified: upstreamtest.Day.Add(2 * time.Hour), Product: "x"}}
	m.SetFeed(2023, content)
	m.Fail(upstreamtest.FeedPath(2023, ".meta"), upstreamtest.Content(fmt.Appendf(nil,
		"lastModifiedDate:2026-07-30T00:00:00-04:00\nsize:400\nsha256:%064X\n", 1)))
	want(t, m.sync(t, "nvd"), "nvd", Updated)

	// A failed year, and a year whose feed is not published yet.
	m.now = time.Date(2027, 1, 1, 1, 0, 0, 0, time.UTC)
	want(t, m.sync(t, "nvd"), "nvd", Current)
	m.Remove(upstreamtest.FeedPath(2023, ".meta"))
	wantFailed(t, m.sync(t, "nvd"), "nvd", "2023: ")
	if asked := m.Requests(); upstreamtest.Count(asked, "2026.meta") == 0 {
		t.Errorf("the years after the failed one were not tried: %q", asked)
	}

	// The feed of the year is expected after January, and not missed once it was there.
	m = newMirror(t)
	m.now = time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	wantFailed(t, m.sync(t, "nvd"), "nvd", "2027: ")
	m = newMirror(t)
	m.now = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	m.sync(t, "nvd")
	m.Remove(upstreamtest.FeedPath(2026, ".meta"))
	wantFailed(t, m.sync(t, "nvd"), "nvd", "2026: ")
}

// TestFirstFeed: the feeds begin with that of 2002, and an unreachable server is not asked for all of them.
func TestFirstFeed(t *testing.T) {
	m := newMirror(t)
	m.options.firstYear = 0
	for year := 2002; year <= 2026; year++ {
		m.Remove(upstreamtest.FeedPath(year, ".meta"))
	}
	wantFailed(t, m.sync(t, "nvd"), "nvd", "2002: ")
	if asked := m.Requests(); len(asked) != maxFailedYears+1 || upstreamtest.Count(asked, "2002.meta") != 1 {
		t.Errorf("requested were %q", asked)
	}
}

func TestParseMeta(t *testing.T) {
	meta, err := parseMeta([]byte("lastModifiedDate:2026-07-30T03:00:01-04:00\r\nsize:123\r\nzipSize:45\r\n" +
		"gzSize:44\r\nsha256:" + strings.Repeat("AB", 32) + "\r\n"))
	if err != nil || meta.size != 123 || meta.sha256 != strings.Repeat("ab", 32) ||
		!meta.modified.Equal(time.Date(2026, 7, 30, 7, 0, 1, 0, time.UTC)) {
		t.Errorf("got %+v, %v", meta, err)
	}
	for _, bad := range []string{
		"", "lastModifiedDate:today\nsize:1\nsha256:" + strings.Repeat("ab", 32),
		"lastModifiedDate:2026-07-30T03:00:01-04:00\nsize:-1\nsha256:" + strings.Repeat("ab", 32),
		"lastModifiedDate:2026-07-30T03:00:01-04:00\nsize:1\nsha256:ab", strings.Repeat("x:y\n", 2000),
	} {
		if _, err := parseMeta([]byte(bad)); err == nil {
			t.Errorf("%.60q is accepted", bad)
		}
	}
}

// cves returns records of NVD's API.
func cves(n int, modified time.Time) []upstreamtest.CVE {
	out := make([]upstreamtest.CVE, n)
	for i := range out {
		out[i] = upstreamtest.CVE{ID: fmt.Sprintf("CVE-2025-%05d", 10000+i), Modified: modified, Product: "product"}
	}
	return out
}

// TestAPI collects everything in pages, then changes.
func TestAPI(t *testing.T) {
	m := newMirror(t)
	m.Key = "0000-key-0000"
	m.options.NVDKey = m.Key
	list := cves(4500, upstreamtest.Day)
	m.SetCVEs(list)
	got := m.sync(t, "nvd-api")
	want(t, got, "nvd-api", Updated)
	if s := got["nvd-api"].State; s.Records() != 4500 || len(s.Files) != 3 || !s.Collected.Equal(m.now) ||
		s.Pending != nil {
		t.Errorf("%d records in %d files, collected to %s", s.Records(), len(s.Files), s.Collected)
	}
	if asked := m.Requests(); len(asked) != 3 || upstreamtest.Count(asked, "lastMod") != 0 {
		t.Errorf("requested were %q", asked)
	}
	m.now = m.now.Add(time.Hour)
	list[7].Modified, list[7].Product = m.now.Add(-time.Minute), "other"
	list = append(list, upstreamtest.CVE{ID: "CVE-2026-9999", Modified: m.now.Add(-time.Minute), Product: "other"})
	m.SetCVEs(list)
	got = m.sync(t, "nvd-api")
	want(t, got, "nvd-api", Updated)
	if asked := m.Requests(); len(asked) != 1 ||
		upstreamtest.Count(asked, "lastModEndDate=2026-08-02T01%3A02%3A00.000Z") != 1 {
		t.Errorf("requested were %q", asked)
	}
	if info := m.database(t).Info(); info.Vulnerabilities != 4501 {
		t.Errorf("%d vulnerabilities", info.Vulnerabilities)
	}
	n := 0
	for _, err := range m.database(t).EachApplicability("example", "other") {
		check(t, err)
		n++
	}
	if n != 2 {
		t.Errorf("%d configurations of a changed product", n)
	}

	// After a year without a run there are several windows.
	m.now = m.now.AddDate(1, 0, 0)
	want(t, m.sync(t, "nvd-api"), "nvd-api", Updated)
	if asked := m.Requests(); len(asked) != 4 {
		t.Errorf("requested were %q", asked)
	}
	m.options.NVDKey = "wrong"
	wantFailed(t, m.sync(t, "nvd-api"), "nvd-api", "404")
}

// TestAPIAfterFeeds: the feeds have the older records; they replace older changes.
func TestAPIAfterFeeds(t *testing.T) {
	m := newMirror(t)
	m.SetCVEs(cves(10, m.now))
	m.sync(t, "nvd")
	m.Requests()
	got := m.sync(t, "nvd-api")
	want(t, got, "nvd-api", Updated)
	if asked := m.Requests(); len(asked) != 1 || upstreamtest.Count(asked, "lastModStartDate=2026-07-28T00%3A00") != 1 {
		t.Errorf("requested were %q", asked)
	}
	m.now = m.now.Add(3 * feedLag)
	want(t, m.sync(t, "nvd"), "nvd", Current)
	got = m.sync(t, "nvd-api")
	if s := got["nvd-api"].State; s.Records() < 10 {
		t.Errorf("with feeds that were not made since, %d records are left", s.Records())
	}
	m.now = m.now.Add(3 * feedLag)
	m.SetFeed(2026, []upstreamtest.CVE{{ID: "CVE-2026-1000", Modified: m.now, Product: "product"}})
	m.sync(t, "nvd")
	got = m.sync(t, "nvd-api")
	if s := got["nvd-api"].State; len(s.Files) != 0 {
		t.Errorf("left are %+v", s.Files)
	}
}

// TestAPIBusy: the API answers 403 to requests that come too often.
func TestAPIBusy(t *testing.T) {
	m := newMirror(t)
	m.SetCVEs(cves(10, upstreamtest.Day))
	const path = "/rest/json/cves/2.0"
	m.Fail(path, upstreamtest.Status(http.StatusForbidden), upstreamtest.Status(http.StatusServiceUnavailable))
	want(t, m.sync(t, "nvd-api"), "nvd-api", Updated)
	for _, bad := range []string{
		`{}`, `{"resultsPerPage":1,"startIndex":0,"totalResults":1,"vulnerabilities":[`,
		`{"resultsPerPage":1,"startIndex":5,"totalResults":9,"vulnerabilities":[{}]}`,
		`{"resultsPerPage":2,"startIndex":0,"totalResults":9,"vulnerabilities":[{}]}`,
		`{"resultsPerPage":0,"startIndex":0,"totalResults":9,"vulnerabilities":[]}`,
	} {
		m.Fail(path, upstreamtest.Content([]byte(bad)))
		want(t, m.sync(t, "nvd-api"), "nvd-api", Failed)
	}
}

// TestAPILimit: attempts have the demanded pause between them, too.
func TestAPILimit(t *testing.T) {
	m := newMirror(t)
	m.options.nvdPause = 200 * time.Millisecond
	m.SetCVEs(cves(10, upstreamtest.Day))
	var times []time.Time
	busy := func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		times = append(times, time.Now())
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	m.Fail("/rest/json/cves/2.0", busy, busy)
	want(t, m.sync(t, "nvd-api"), "nvd-api", Updated)
	if len(times) != 2 || times[1].Sub(times[0]) < 150*time.Millisecond {
		t.Errorf("attempts at %v", times)
	}
}

// TestAPIDamaged: the records of a damaged page are collected again.
func TestAPIDamaged(t *testing.T) {
	m := newMirror(t)
	m.SetCVEs(cves(4500, upstreamtest.Day))
	got := m.sync(t, "nvd-api")
	check(t, os.Remove(m.path(t, "nvd-api", got["nvd-api"].State.Files[1].Name)))
	// An interruption does not begin it again.
	m.Fail("/rest/json/cves/2.0", m.ServePage, upstreamtest.Status(http.StatusNotFound))
	wantFailed(t, m.sync(t, "nvd-api"), "nvd-api", "404")
	if _, err := Open(t.Context(), m.options.Dir); err == nil {
		t.Error("a mirror without its records is opened")
	}
	m.Requests()
	got = m.sync(t, "nvd-api")
	want(t, got, "nvd-api", Updated)
	if s := got["nvd-api"].State; s.Records() != 4500 {
		t.Errorf("%d records", s.Records())
	}
	if asked := m.Requests(); upstreamtest.Count(asked, "startIndex=0") != 1 { // of what changed since
		t.Errorf("requested were %q", asked)
	}
}

// TestAPIResumed: an interrupted collection continues with its next page; a window that changes is read again.
func TestAPIResumed(t *testing.T) {
	m := newMirror(t)
	m.SetCVEs(cves(4500, upstreamtest.Day))
	const path = "/rest/json/cves/2.0"
	m.Fail(path, m.ServePage, upstreamtest.Status(http.StatusNotFound))
	wantFailed(t, m.sync(t, "nvd-api"), "nvd-api", "404")
	m.Requests()
	want(t, m.sync(t, "nvd-api"), "nvd-api", Updated)
	// Two pages are missing, and the last request is for what changed since.
	if asked := m.Requests(); len(asked) != 3 || upstreamtest.Count(asked, "startIndex=0") != 1 {
		t.Errorf("requested were %q", asked)
	}

	m.SetCVEs(cves(4500, m.now))
	fewer := func(w http.ResponseWriter, r *http.Request, _ []byte) {
		m.SetCVEs(cves(4400, m.now.Add(-time.Minute)))
		m.ServePage(w, r, nil)
	}
	m.Fail(path, m.ServePage, fewer)
	m.Requests()
	want(t, m.sync(t, "nvd-api"), "nvd-api", Updated)
	if asked := m.Requests(); upstreamtest.Count(asked, "startIndex=0") != 2 || len(asked) != 5 {
		t.Errorf("requested were %q", asked)
	}
}
