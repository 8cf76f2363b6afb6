package registrymirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
)

// registry is the origin of a test. It accepts one credential, and counts the bytes of layers that it sends.
type registry struct {
	*httptest.Server
	layers map[string][]byte
	sent   atomic.Int64
	asked  atomic.Int64 // requests
	isDown atomic.Bool
	damage atomic.Bool // every byte is wrong
	slow   chan struct{}
}

const goodCredential = "Bearer good"

func startRegistry(t *testing.T, layers ...blobtest.Layer) *registry {
	t.Helper()
	r := &registry{layers: map[string][]byte{}}
	for _, l := range layers {
		r.layers[l.Index.Digest().String()] = fileOf(l)
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func fileOf(l blobtest.Layer) []byte {
	return append(bytes.Clone(l.Frames), l.Index.IndexAndFooter()...)
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.asked.Add(1)
	if r.isDown.Load() {
		panic(http.ErrAbortHandler)
	}
	if req.Header.Get("Authorization") != goodCredential {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if req.URL.Path == manifestPath {
		_, _ = io.WriteString(w, `{"status":"OK","body":"`+req.URL.Query().Get("id")+`"}`)
		return
	}
	content, ok := r.layers[strings.TrimPrefix(req.URL.Path, layerPath)]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if req.Method == http.MethodGet {
		if r.slow != nil {
			<-r.slow
		}
		if r.damage.Load() {
			content = bytes.Repeat([]byte{7}, len(content))
		}
	}
	counted := &countedWriter{ResponseWriter: w}
	http.ServeContent(counted, req, "", time.Time{}, bytes.NewReader(content))
	if req.Method == http.MethodGet {
		r.sent.Add(counted.n)
	}
}

type countedWriter struct {
	http.ResponseWriter
	n int64
}

func (c *countedWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n += int64(n)
	return n, err
}

// site is a mirror with its server.
type site struct {
	t      *testing.T
	opts   Options
	mirror *Mirror
	server *httptest.Server
	offset atomic.Int64 // of the clock
}

func newSite(t *testing.T, r *registry, maxBytes int64) *site {
	t.Helper()
	address, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t}
	s.opts = Options{
		Origin: address, Dir: t.TempDir(), MaxBytes: maxBytes, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) },
	}
	s.open()
	t.Cleanup(s.close)
	return s
}

func (s *site) open() {
	s.t.Helper()
	var err error
	if s.mirror, err = Open(s.opts); err != nil {
		s.t.Fatal(err)
	}
	s.server = httptest.NewServer(s.mirror.Handler())
}

func (s *site) close() {
	s.server.Close()
	if err := s.mirror.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *site) get(path, credential, rangeHeader string) (int, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", credential)
	if rangeHeader != "" {
		req.Header.Set("Range", rangeHeader)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// wantLayer checks that a layer is served whole.
func (s *site) wantLayer(l blobtest.Layer) {
	s.t.Helper()
	status, body := s.get(layerPath+l.Index.Digest().String(), goodCredential, "")
	if want := fileOf(l); status != http.StatusOK || sha256.Sum256(body) != sha256.Sum256(want) {
		s.t.Fatalf("status %d, %d bytes, want %d", status, len(body), len(want))
	}
}

// wantStored waits until a file of a layer is there.
func (s *site) wantStored(root blob.Digest, suffix string) {
	s.t.Helper()
	name := filepath.Join(s.opts.Dir, root.String()+suffix)
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("there is no %s", name)
		}
	}
}

// TestSecondPullCostsTheOriginNothing: also after a restart of the mirror.
func TestSecondPullCostsTheOriginNothing(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 1, 3*chunkBytes+12345)
	r := startRegistry(t, l)
	s := newSite(t, r, 0)
	s.wantLayer(l)
	if sent := r.sent.Load(); sent != int64(len(fileOf(l))) {
		t.Errorf("the origin sent %d bytes of %d", sent, len(fileOf(l)))
	}
	s.wantStored(l.Index.Digest(), wholeSuffix)
	before := r.sent.Load()
	s.wantLayer(l)
	s.close()
	s.open()
	s.wantLayer(l)
	if sent := r.sent.Load() - before; sent != 0 {
		t.Errorf("the origin sent %d more bytes", sent)
	}
	if hits := s.mirror.metrics.layerHits.Value(); hits != 1 {
		t.Errorf("%v hits since the restart", hits)
	}
}

// TestRanges: only the chunks of a range are fetched, each once, whoever asks.
func TestRanges(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 2, 6*chunkBytes)
	r := startRegistry(t, l)
	s := newSite(t, r, 0)
	path, content := layerPath+l.Index.Digest().String(), fileOf(l)
	var asks sync.WaitGroup
	for i := range 8 {
		asks.Go(func() {
			first, last := 2*chunkBytes+i, 3*chunkBytes+100+i
			status, body := s.get(path, goodCredential, fmt.Sprintf("bytes=%d-%d", first, last))
			if status != http.StatusPartialContent || !bytes.Equal(body, content[first:last+1]) {
				t.Errorf("status %d, %d bytes", status, len(body))
			}
		})
	}
	asks.Wait()
	if sent := r.sent.Load(); sent != 2*chunkBytes {
		t.Errorf("the origin sent %d bytes, want two chunks", sent)
	}
	s.close()
	s.open() // an orderly end keeps incomplete layers
	if status, body := s.get(path, goodCredential, fmt.Sprintf("bytes=%d-%d", 2*chunkBytes, 2*chunkBytes+9)); status !=
		http.StatusPartialContent || !bytes.Equal(body, content[2*chunkBytes:2*chunkBytes+10]) {
		t.Errorf("status %d", status)
	}
	if sent := r.sent.Load(); sent != 2*chunkBytes {
		t.Errorf("the origin sent %d bytes after a restart", sent)
	}
	s.wantLayer(l)
	s.wantStored(l.Index.Digest(), wholeSuffix)
}

// TestPermission: the origin decides for each credential, also about stored layers.
func TestPermission(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 3, 1<<20)
	s := newSite(t, startRegistry(t, l), 0)
	s.wantLayer(l)
	path := layerPath + l.Index.Digest().String()
	for name, c := range map[string]struct {
		path, credential string
		status           int
	}{
		"another credential": {path, "Bearer bad", 403},
		"none":               {path, "", 403},
		"no such layer":      {layerPath + strings.Repeat("a", 64), goodCredential, 404},
		"not a digest":       {layerPath + "..%2fx", goodCredential, 404},
		"a manifest":         {manifestPath + "?id=x", "Bearer bad", 403},
		"a push":             {"/registry/v2/push/x", goodCredential, 404},
	} {
		if status, body := s.get(c.path, c.credential, ""); status != c.status {
			t.Errorf("%s: status %d (%s), want %d", name, status, body, c.status)
		}
	}
}

// TestOriginAway: callers that the origin permitted lately are served, and no others.
func TestOriginAway(t *testing.T) {
	l, other := blobtest.Make(t, blob.KindDisk, 4, 1<<20), blobtest.Make(t, blob.KindDisk, 5, 1<<20)
	r := startRegistry(t, l, other)
	s := newSite(t, r, 0)
	s.wantLayer(l)
	s.wantStored(l.Index.Digest(), wholeSuffix)
	if status, body := s.get(manifestPath+"?id=one", goodCredential, ""); status != 200 ||
		string(body) != `{"status":"OK","body":"one"}` {
		t.Fatalf("status %d: %s", status, body)
	}
	r.isDown.Store(true)
	s.offset.Store(int64(2 * PermitTime))
	s.wantLayer(l)
	if status, body := s.get(manifestPath+"?id=one", goodCredential, ""); status != 200 ||
		string(body) != `{"status":"OK","body":"one"}` {
		t.Errorf("the last manifest: status %d: %s", status, body)
	}
	for name, path := range map[string]string{
		"a layer that was not requested": layerPath + other.Index.Digest().String(),
		"another manifest":               manifestPath + "?id=two",
	} {
		if status, _ := s.get(path, goodCredential, ""); status != http.StatusBadGateway {
			t.Errorf("%s: status %d", name, status)
		}
	}
	for _, path := range []string{layerPath + l.Index.Digest().String(), manifestPath + "?id=one"} {
		if status, _ := s.get(path, "Bearer bad", ""); status != http.StatusBadGateway {
			t.Errorf("another credential: status %d for %s", status, path)
		}
	}
	s.offset.Store(int64(2 * StalePermitTime))
	if status, _ := s.get(layerPath+l.Index.Digest().String(), goodCredential, ""); status != http.StatusBadGateway {
		t.Errorf("after the limit: status %d", status)
	}
}

// TestDamagedLayer: what does not match its digest is removed, and fetched again.
func TestDamagedLayer(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 6, 2<<20)
	r := startRegistry(t, l)
	r.damage.Store(true)
	s := newSite(t, r, 0)
	s.get(layerPath+l.Index.Digest().String(), goodCredential, "")
	for end := time.Now().Add(time.Minute); s.mirror.store.count() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the damaged layer stays")
		}
	}
	r.damage.Store(false)
	s.wantLayer(l)
	s.wantStored(l.Index.Digest(), wholeSuffix)
}

// TestDamagedFile: a complete layer whose file was damaged is removed after the start, or when it is requested with
// another size, and fetched again.
func TestDamagedFile(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 8, 2<<20)
	r := startRegistry(t, l)
	s := newSite(t, r, 0)
	s.wantLayer(l)
	s.wantStored(l.Index.Digest(), wholeSuffix)
	name := filepath.Join(s.opts.Dir, l.Index.Digest().String()+wholeSuffix)
	s.close()
	flipped := fileOf(l)
	flipped[len(flipped)/2] ^= 1
	if err := os.WriteFile(name, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	for end := time.Now().Add(time.Minute); s.mirror.store.count() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the damaged layer stays")
		}
	}
	s.wantLayer(l)
	s.wantStored(l.Index.Digest(), wholeSuffix)
	s.close()
	if err := os.Truncate(name, 100); err != nil {
		t.Fatal(err)
	}
	s.open()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		status, body := s.get(layerPath+l.Index.Digest().String(), goodCredential, "")
		if status == http.StatusOK && bytes.Equal(body, fileOf(l)) {
			return
		}
		if time.Now().After(end) { // it may be verified at the moment
			t.Fatalf("status %d, %d bytes", status, len(body))
		}
	}
}

// TestOldestLayersMakeRoom: those that are in use stay.
func TestOldestLayersMakeRoom(t *testing.T) {
	var layers []blobtest.Layer
	for seed := range uint64(4) {
		layers = append(layers, blobtest.Make(t, blob.KindDisk, 10+seed, 1<<20))
	}
	r := startRegistry(t, layers...)
	s := newSite(t, r, int64(len(fileOf(layers[0])))*5/2) // two layers
	for i, l := range layers[:3] {
		s.offset.Store(int64(i) * int64(time.Second))
		s.wantLayer(l)
		s.wantStored(l.Index.Digest(), wholeSuffix)
	}
	before := r.sent.Load()
	s.wantLayer(layers[1])
	s.wantLayer(layers[2])
	if sent := r.sent.Load() - before; sent != 0 || s.mirror.store.count() != 2 {
		t.Errorf("%d bytes more, %d layers", sent, s.mirror.store.count())
	}
	for _, l := range layers[1:3] {
		held, err := s.mirror.store.acquire(l.Index.Digest(), l.Index.FileSize())
		if err != nil {
			t.Fatal(err)
		}
		defer s.mirror.store.release(held)
	}
	if status, body := s.get(layerPath+layers[3].Index.Digest().String(), goodCredential, ""); status !=
		http.StatusServiceUnavailable || !strings.Contains(string(body), "does not fit") {
		t.Errorf("status %d: %s", status, body)
	}
}

// TestCrashedMirror: incomplete layers without a list of their chunks are fetched again.
func TestCrashedMirror(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 7, 2*chunkBytes)
	r := startRegistry(t, l)
	s := newSite(t, r, 0)
	s.close()
	name := filepath.Join(s.opts.Dir, l.Index.Digest().String())
	for suffix, text := range map[string]string{partSuffix: "half of it", ".other": "x"} {
		if err := os.WriteFile(name+suffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.open()
	if _, err := os.Stat(name + partSuffix); err == nil {
		t.Error("the incomplete layer stays")
	}
	s.wantLayer(l)
}

// TestCanceledRequest: a request that ends does not end the others that wait for the same chunk.
func TestCanceledRequest(t *testing.T) {
	l := blobtest.Make(t, blob.KindDisk, 8, 1<<20)
	r := startRegistry(t, l)
	r.slow = make(chan struct{})
	s := newSite(t, r, 0)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+layerPath+l.Index.Digest().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", goodCredential)
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	for r.asked.Load() < 2 { // its HEAD and its GET
		time.Sleep(time.Millisecond)
	}
	go func() {
		cancel()
		close(r.slow)
	}()
	s.wantLayer(l)
}

// FuzzChunks: no list of chunks makes the mirror fail, or believe in a layer that is not there.
func FuzzChunks(f *testing.F) {
	f.Add([]byte(`{"size":9000000,"chunks":[0,2]}`))
	f.Add([]byte(`{"size":-1,"chunks":[0]}`))
	f.Add([]byte(`{"size":9000000,"chunks":[99,-1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		root := blob.Digest(sha256.Sum256([]byte("x")))
		if err := os.WriteFile(filepath.Join(dir, root.String()+chunksSuffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
		opened, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		s := &layerStore{dir: opened}
		if l := s.loadPart(root); l != nil && (l.missing < 0 || l.missing > len(l.have) || l.size <= 0) {
			t.Errorf("%+v", l)
		}
	})
}
