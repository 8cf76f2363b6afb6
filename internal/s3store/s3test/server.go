// Package s3test is an S3 server in memory for tests, with faults on request.
//
// It checks no signature except the expiry of presigned URLs, and it is not a model of any vendor: test/s3 uses a real
// server.
//
// Invariant: conditional writes and listings are linearizable, as the registry requires.
package s3test

import (
	"bytes"
	"crypto/md5" // S3's checksum
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/s3store"
)

// Bucket is the name of the bucket that exists.
const Bucket = "templates"

// Server is a running server. Faults may be set at any time.
type Server struct {
	URL string

	mu       sync.Mutex // guards the fields below
	objects  map[string]object
	uploads  map[string]*multipart
	requests []string // method and key, without the query's values
	nextID   int
	fault    func(r *http.Request) Fault
	now      func() time.Time
	weak     bool   // conditions are ignored
	rules    []byte // the lifecycle configuration; nil: none
}

// Fault is what happens to a request. The zero value is nothing.
type Fault struct {
	Status   int    // respond with this status instead of acting
	Before   func() // called before the request is carried out
	Lost     bool   // carry the request out and cut the connection
	CutAfter int    // bytes of the response's body after which the connection is cut; 0: none
}

type object struct {
	data     []byte
	etag     string
	modified time.Time
}

type multipart struct {
	key   string
	parts map[int]object
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string]object{}, uploads: map[string]*multipart{}, now: time.Now}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Options returns options for the server.
func (s *Server) Options() s3store.Options {
	return s3store.Options{
		Bucket: Bucket, Endpoint: s.URL, Region: "us-east-1", AccessKeyID: "key", SecretAccessKey: "secret",
		PathStyle: true, PartSize: s3store.MinPartSize, KeepLifecycle: true,
	}
}

// SetFault sets the function that decides about each request; nil ends the faults.
func (s *Server) SetFault(f func(r *http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// IgnoreConditions makes the server one that carries out every write.
func (s *Server) IgnoreConditions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weak = true
}

// Advance moves the clock of the server, by which presigned URLs expire.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.now
	s.now = func() time.Time { return before().Add(d) }
}

// Keys returns the keys of all objects with a prefix, sorted.
func (s *Server) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	return keys
}

// Uploads returns the number of incomplete uploads.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Parts returns the number of parts of incomplete uploads.
func (s *Server) Parts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, u := range s.uploads {
		n += len(u.parts)
	}
	return n
}

// Set writes an object behind the back of its users; nil removes it.
func (s *Server) Set(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.objects, key); data != nil {
		s.objects[key] = newObject(data, s.now())
	}
}

// Get returns an object; nil when there is none.
func (s *Server) Get(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].data
}

// TakeRequests returns the requests since the last call, as method and key.
func (s *Server) TakeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.requests
	s.requests = nil
	return list
}

// Lifecycle returns the lifecycle configuration of the bucket; nil when there is none.
func (s *Server) Lifecycle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules
}

// SetLifecycle sets the lifecycle configuration, as another program does.
func (s *Server) SetLifecycle(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = raw
}

func (s *Server) handleLifecycle(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			respondError(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.SetLifecycle(raw)
		return
	}
	if raw := s.Lifecycle(); raw != nil {
		_, _ = w.Write(raw)
		return
	}
	respondError(w, http.StatusNotFound, "NoSuchLifecycleConfiguration")
}

func newObject(data []byte, now time.Time) object {
	sum := md5.Sum(data)
	return object{data: data, etag: hex.EncodeToString(sum[:]), modified: now.UTC().Truncate(time.Second)}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+Bucket), "/")
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+key+queryNames(r))
	fault := s.fault
	s.mu.Unlock()
	var f Fault
	if fault != nil {
		f = fault(r)
	}
	if f.Before != nil {
		f.Before()
	}
	switch {
	case f.Status != 0:
		respondError(w, f.Status, "InjectedFault")
	case f.Lost:
		s.handle(httptest.NewRecorder(), r, key)
		panic(http.ErrAbortHandler)
	case f.CutAfter > 0:
		s.handle(&cuttingWriter{ResponseWriter: w, left: f.CutAfter}, r, key)
	default:
		s.handle(w, r, key)
	}
}

func queryNames(r *http.Request) string {
	var names []string
	for name := range r.URL.Query() {
		if !strings.HasPrefix(name, "X-Amz-") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "?" + strings.Join(names, "&")
}

// cuttingWriter cuts the connection after some bytes of the body.
type cuttingWriter struct {
	http.ResponseWriter
	left int
}

func (c *cuttingWriter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		if f, ok := c.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func respondError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request, key string) {
	query := r.URL.Query()
	if expired := s.isExpired(query.Get("X-Amz-Date"), query.Get("X-Amz-Expires")); expired {
		respondError(w, http.StatusForbidden, "AccessDenied")
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/"+Bucket) {
		respondError(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	switch {
	case key == "" && query.Has("lifecycle"):
		s.handleLifecycle(w, r)
	case key == "" && query.Has("uploads"):
		s.listUploads(w)
	case key == "" && r.Method == http.MethodGet && !query.Has("location"):
		s.list(w, query.Get("prefix"), query.Get("continuation-token"))
	case key == "" && query.Has("location"):
		respondXML(w, struct {
			XMLName xml.Name `xml:"LocationConstraint"`
		}{})
	case key == "":
		w.WriteHeader(http.StatusOK) // HEAD
	case query.Has("uploads"):
		s.begin(w, key)
	case query.Has("uploadId"):
		s.handlePart(w, r, key)
	default:
		s.handleObject(w, r, key)
	}
}

func (s *Server) isExpired(date, seconds string) bool {
	began, err := time.Parse("20060102T150405Z", date)
	n, badNumber := strconv.Atoi(seconds)
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && badNumber == nil && s.now().After(began.Add(time.Duration(n)*time.Second))
}

func (s *Server) handleObject(w http.ResponseWriter, r *http.Request, key string) {
	switch r.Method {
	case http.MethodPut:
		data, err := readBody(r)
		if err != nil {
			respondError(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.put(w, r, key, data)
	case http.MethodDelete:
		s.Set(key, nil)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.mu.Lock()
		o, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			respondError(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", `"`+o.etag+`"`)
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.data))
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.objects[key]
	match := strings.Trim(r.Header.Get("If-Match"), `"`)
	refused := r.Header.Get("If-None-Match") == "*" && there || match != "" && (!there || match != old.etag)
	if refused && !s.weak {
		respondError(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	o := newObject(data, s.now())
	s.objects[key] = o
	w.Header().Set("ETag", `"`+o.etag+`"`)
	w.WriteHeader(http.StatusOK)
}

// readBody reads a body and compares its checksum.
func readBody(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		if data, err = decodeChunks(data); err != nil {
			return nil, err
		}
	}
	if want := r.Header.Get("Content-Md5"); want != "" {
		sum := md5.Sum(data)
		if base64.StdEncoding.EncodeToString(sum[:]) != want {
			return nil, fmt.Errorf("checksum differs")
		}
	}
	return data, nil
}

// decodeChunks decodes a body whose chunks are signed.
func decodeChunks(raw []byte) ([]byte, error) {
	var out []byte
	for {
		line, rest, ok := bytes.Cut(raw, []byte("\r\n"))
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(size), 16, 64)
		if !ok || err != nil || n > int64(len(rest)) {
			return nil, io.ErrUnexpectedEOF
		}
		if n == 0 {
			return out, nil
		}
		out = append(out, rest[:n]...)
		raw = bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}

func respondXML(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	raw, _ := xml.Marshal(v)
	_, _ = w.Write(append([]byte(xml.Header), raw...))
}
