package upstreamtest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Upstream is a server with all sources. Its methods may be called by any goroutine.
type Upstream struct {
	URL string
	Key string // that NVD's API demands; "" is none. Set it before the first request.

	mu       sync.Mutex // guards the fields below
	files    map[string]file
	faults   map[string][]Fault
	requests []string
	cves     []CVE
	now      time.Time // date of the next file, a minute later for each
}

// file is a version of a file.
type file struct {
	content  []byte
	modified time.Time
}

// Fault answers a request wrongly, in place of the file.
type Fault func(w http.ResponseWriter, r *http.Request, content []byte)

// Paths on the server.
const (
	osvPath     = "/osv/"
	feedsPath   = "/feeds/json/cve/2.0/"
	apiPath     = "/rest/json/cves/2.0"
	KEVPath     = "/kev.json"
	EPSSPath    = "/epss_scores-current.csv.gz"
	TrackerPath = "/tracker/data/json"
	archivePath = "/archive/"
)

// New starts a server with small content of every source, until the test ends.
func New(t testing.TB) *Upstream {
	u, stop := Start()
	t.Cleanup(stop)
	return u
}

// Start is New for callers that end the server themselves.
func Start() (u *Upstream, stop func()) {
	first := initial()
	u = &Upstream{files: maps.Clone(first.files), faults: map[string][]Fault{}, now: first.now}
	s := httptest.NewServer(u)
	u.URL = s.URL
	return u, s.Close
}

// initial has the content of a new server. Making it takes most of the time of a short test.
var initial = sync.OnceValue(func() *Upstream {
	u := &Upstream{files: map[string]file{}, now: time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)}
	u.setAll()
	return u
})

// URLs returns the URL of each source.
func (u *Upstream) URLs() map[string]string {
	urls := map[string]string{
		"osv": u.URL + osvPath, "nvd": u.URL + feedsPath, "nvd-api": u.URL + apiPath, "kev": u.URL + KEVPath,
		"epss": u.URL + EPSSPath, "debian-tracker": u.URL + TrackerPath,
	}
	for _, name := range []string{"rubysec", "homebrew", "nvd-overrides", "vulnrichment"} {
		urls[name] = u.URL + archivePath + name + ".tar.gz"
	}
	return urls
}

// Set publishes a new version of a file.
func (u *Upstream) Set(path string, content []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now = u.now.Add(time.Minute)
	u.files[path] = file{content, u.now}
}

// Remove removes a file.
func (u *Upstream) Remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.files, path)
}

// Fail lets the next requests of a path fail, each with one of the faults.
func (u *Upstream) Fail(path string, faults ...Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults[path] = append(u.faults[path], faults...)
}

// Requests returns the requests since the last call: path, query, range and condition of each.
func (u *Upstream) Requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.requests
	u.requests = nil
	return list
}

// Count returns how many requests contain a text.
func Count(requests []string, text string) int {
	n := 0
	for _, r := range requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// ServeHTTP implements http.Handler.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	u.mu.Lock()
	u.requests = append(u.requests, strings.Join([]string{
		r.URL.RequestURI(), r.Header.Get("Range"), r.Header.Get("If-Range"), r.Header.Get("If-None-Match"),
	}, " "))
	f, found := u.files[path]
	var fault Fault
	if list := u.faults[path]; len(list) > 0 {
		fault, u.faults[path] = list[0], list[1:]
	}
	u.mu.Unlock()
	switch {
	case fault != nil:
		fault(w, r, f.content)
	case path == apiPath:
		u.ServePage(w, r, nil)
	case !found:
		http.NotFound(w, r)
	default:
		f.serve(w, r)
	}
}

// serve answers conditional requests and requests for ranges.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	content, suffix := f.content, ""
	if strings.HasSuffix(r.URL.Path, "json") && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content, suffix = Gzip(content), "-gzip"
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
	}
	w.Header().Set("ETag", etag(f.content, suffix))
	if strings.HasPrefix(r.URL.Path, osvPath) {
		w.Header().Set("X-Goog-Hash", "crc32c="+crc(content))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", f.modified, bytes.NewReader(content))
}

func etag(content []byte, suffix string) string {
	return fmt.Sprintf(`"%x%s"`, sha256.Sum256(content), suffix)
}

func crc(content []byte) string {
	sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// Gzip returns content in gzip form.
func Gzip(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(content) // to memory
	_ = z.Close()
	return b.Bytes()
}
