package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// server is a registry behind HTTP whose requests a test may disturb.
type server struct {
	*httptest.Server
	reg     *registry.Registry
	disturb atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
}

func serve(t *testing.T, base string) *server {
	t.Helper()
	reg, err := registry.Open(t.Context(), registry.Options{Base: base, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{reg: reg}
	h := rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d := s.disturb.Load(); d != nil {
			(*d)(w, r, h)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	s.Server.Close()
	_ = s.reg.Close() // a test may have closed it
}

func (s *server) client(t *testing.T) *transfer.Client {
	t.Helper()
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Idle: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type file struct {
	transfer.PushFile
	sum  [sha256.Size]byte
	size int64
}

// write makes a file of size bytes in which only the ranges of data (offset -> length) are not holes.
func write(t *testing.T, name, kind, format string, size int64, data map[int64]int) file {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rnd := rand.NewChaCha8([32]byte{byte(len(name)), byte(size)})
	for off, n := range data {
		p := make([]byte, n)
		_, _ = rnd.Read(p)
		for i := n / 2; i < n; i++ {
			p[i] = byte(i / 97) // half of it compresses
		}
		if _, err := f.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	out := file{PushFile: transfer.PushFile{Name: name, Path: path, Kind: kind, Format: format}, size: size}
	out.sum = sum(t, path)
	return out
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func threeFiles(t *testing.T) []file {
	return []file{
		write(t, "disk.img", api.FileDisk, "raw", 48<<20+1234, map[int64]int{0: 1 << 20, 5<<20 + 4096: 3 << 20, 40 << 20: 100, 48<<20 + 1000: 234}),
		write(t, "data.qcow2", api.FileDisk, "qcow2", 21<<20, map[int64]int{0: 21 << 20}),
		write(t, "memory.state", api.FileState, "", 3<<20, map[int64]int{0: 2 << 20}),
	}
}

func pushOptions(tag string, files ...file) transfer.PushOptions {
	o := transfer.PushOptions{Request: api.PushRequest{
		ID: templateID, Name: "debian-13", Tag: tag, Arch: "amd64", NVRAM: []byte("variables"),
		Config: json.RawMessage(`{"ram":"2G","cpu":{"cores":2},"hard_drives":[{"file":"disk.img"}],"own":{"kept":[1,2.5,"x",null,true]}}`),
	}}
	for _, f := range files {
		o.Files = append(o.Files, f.PushFile)
	}
	return o
}

func mustPush(t *testing.T, c *transfer.Client, o transfer.PushOptions) api.PushResult {
	t.Helper()
	result, err := c.Push(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func mustPull(t *testing.T, c *transfer.Client, tag, dir string, files []file) transfer.PullResult {
	t.Helper()
	result, err := c.Pull(t.Context(), transfer.PullOptions{Ref: transfer.Ref{ID: templateID, Tag: tag}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, dir, files)
	return result
}

func mustHold(t *testing.T, dir string, files []file) {
	t.Helper()
	for _, f := range files {
		if sum(t, filepath.Join(dir, f.Name)) != f.sum {
			t.Fatalf("%s differs after the pull", f.Name)
		}
	}
	for _, pattern := range []string{"*.partial", "*.journal"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Fatalf("left over: %v", left)
		}
	}
}

func TestPushAndPull(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	files := threeFiles(t)
	o := pushOptions("v1+a/b:c #1", files...)
	var last transfer.Progress
	o.Progress = func(p transfer.Progress) { last = p }
	result := mustPush(t, c, o)
	if result.Number != 0 || result.ID != templateID || len(result.ContentID) != 64 || result.Gen != 1 {
		t.Fatalf("%+v", result)
	}
	if last.Fraction() != 1 {
		t.Fatalf("progress of the push ended at %+v", last)
	}
	dir := t.TempDir()
	pulled := mustPull(t, c, "v1+a/b:c #1", dir, files)
	if pulled.Manifest.ContentID != result.ContentID || pulled.Bytes > result.Size {
		t.Fatalf("pulled %d bytes of %d", pulled.Bytes, result.Size)
	}
	nvram, err := os.ReadFile(filepath.Join(dir, transfer.NVRAMFile))
	if err != nil || string(nvram) != "variables" {
		t.Fatalf("nvram %q, %v", nvram, err)
	}
	config, err := os.ReadFile(filepath.Join(dir, transfer.ConfigFile))
	want := `{"cpu":{"cores":2},"hard_drives":[{"file":"disk.img"}],"name":"debian-13","own":{"kept":[1,2.5,"x",null,true]},"ram":"2G","uuid":"` + templateID + `"}`
	if err != nil || string(config) != want {
		t.Fatalf("config %s, %v", config, err)
	}
	// A second pull into the same folder without journals fetches anew and ends the same.
	mustPull(t, c, "", dir, files)
	checkDetail(t, c, result)
}

func checkDetail(t *testing.T, c *transfer.Client, result api.PushResult) {
	t.Helper()
	d, err := c.Detail(t.Context(), templateID)
	if err != nil || len(d.Versions) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	v := d.Versions[0]
	if len(v.Images) != 2 || len(v.StateFiles) != 1 || v.StateFile != v.StateFiles[0] || v.NVRAM != "nvram" || v.ConfigFile != templateID+".yaml" {
		t.Fatalf("%+v", v)
	}
	if d.Size != result.Size || v.Size != d.Size || d.LastPull == 0 || v.LastPull != d.LastPull || v.LastPush == 0 || v.CreationDate == 0 || d.Arch != "amd64" {
		t.Fatalf("%+v", d)
	}
	info, err := c.Info(t.Context(), transfer.Ref{ID: templateID, Tag: v.Tag})
	if err != nil || info.RAM != "2G" || info.CPU.Cores != 2 || info.UUID != templateID {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestNextTagSendsOnlyWhatIsNew(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	files := threeFiles(t)
	mustPush(t, c, pushOptions("v1", files...))
	d, err := c.Manifest(t.Context(), transfer.Ref{ID: templateID})
	if err != nil {
		t.Fatal(err)
	}
	var puts atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPut {
			puts.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	o := pushOptions("v2", files...)
	for i, f := range d.Files {
		o.Files[i].Root = f.Layers[0].Root
	}
	result := mustPush(t, c, o)
	if puts.Load() != 0 {
		t.Fatalf("%d requests with bytes that the registry has", puts.Load())
	}
	if result.Number != 1 || result.ContentID != d.ContentID {
		t.Fatalf("%+v: equal content has another id than %s", result, d.ContentID)
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	mustPush(t, c, pushOptions("v1", f))
	for name, test := range map[string]struct {
		change func(*transfer.PushOptions)
		code   farm.Code
	}{
		"tag is taken":         {func(o *transfer.PushOptions) { o.Request.Tag = "v1" }, farm.CodeRefused},
		"other architecture":   {func(o *transfer.PushOptions) { o.Request.Arch = "arm64" }, farm.CodeRefused},
		"unknown architecture": {func(o *transfer.PushOptions) { o.Request.Arch = "mips" }, farm.CodeInvalid},
		"no tag":               {func(o *transfer.PushOptions) { o.Request.Tag = "" }, farm.CodeInvalid},
		"id is no uuid":        {func(o *transfer.PushOptions) { o.Request.ID = "../../etc" }, farm.CodeInvalid},
		"generation moved":     {func(o *transfer.PushOptions) { gen := int64(7); o.Request.Gen = &gen }, farm.CodeConflict},
		"must exist": {func(o *transfer.PushOptions) {
			o.Request.ID, o.Request.MustExist = "99999999-2222-4333-8444-555555555555", true
		}, farm.CodeNotFound},
		"file leaves its folder": {func(o *transfer.PushOptions) { o.Files[0].Name = "../x" }, farm.CodeInvalid},
		"config is no object":    {func(o *transfer.PushOptions) { o.Request.Config = json.RawMessage(`[1]`) }, farm.CodeInvalid},
		"nvram too long":         {func(o *transfer.PushOptions) { o.Request.NVRAM = make([]byte, 4<<20+1) }, farm.CodeInvalid},
	} {
		o := pushOptions("v2", f)
		test.change(&o)
		if _, err := c.Push(t.Context(), o); farm.CodeOf(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, err := c.Detail(t.Context(), templateID)
	if err != nil || len(d.Versions) != 1 {
		t.Fatalf("%d versions, %v", len(d.Versions), err)
	}
}

func TestRevertInThePush(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	for _, tag := range []string{"v1", "v2", "v3"} {
		mustPush(t, c, pushOptions(tag, f))
	}
	o := pushOptions("v2", f) // the tag is free once the revert is done
	o.Request.Revert = &api.PushRevert{Tag: "v2"}
	if r := mustPush(t, c, o); r.Number != 1 {
		t.Fatalf("%+v", r)
	}
	o = pushOptions("v9", f)
	o.Request.Revert = &api.PushRevert{Tag: "no such tag"}
	if r := mustPush(t, c, o); r.Number != 2 {
		t.Fatalf("%+v", r)
	}
}

// cutting breaks connections after a random number of bytes in both directions.
func cutting(limit int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 1))
	return func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		mu.Lock()
		left := rnd.Int64N(limit)
		mu.Unlock()
		r.Body = io.NopCloser(&cutReader{r: r.Body, left: left})
		h.ServeHTTP(&cutWriter{ResponseWriter: w, left: left}, r)
	}
}

type cutReader struct {
	r    io.Reader
	left int64
}

func (c *cutReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		panic(http.ErrAbortHandler)
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.left)
	c.left -= n
	if _, err := c.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if c.left <= 0 {
		panic(http.ErrAbortHandler)
	}
	return len(p), nil
}

func TestCutConnectionsComplete(t *testing.T) {
	s := serve(t, t.TempDir())
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Idle: 2 * time.Second, Attempts: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	disturb := cutting(12 << 20)
	s.disturb.Store(&disturb)
	files := threeFiles(t)
	mustPush(t, c, pushOptions("v1", files...))
	disturb = cutting(3 << 20)
	s.disturb.Store(&disturb)
	mustPull(t, c, "v1", t.TempDir(), files)
}

// flipping damages one bit of every n-th bulk body.
func flipping(n int64, requests *atomic.Int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if registryrest.IsBulk(r) && requests.Add(1)%n == 0 {
			r.Body = io.NopCloser(&flipReader{r: r.Body})
			w = &flipWriter{ResponseWriter: w}
		}
		h.ServeHTTP(w, r)
	}
}

type flipReader struct {
	r io.Reader
	n int64
}

func (f *flipReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	flip(p[:n], f.n)
	f.n += int64(n)
	return n, err
}

type flipWriter struct {
	http.ResponseWriter
	n int64
}

func (f *flipWriter) Write(p []byte) (int, error) {
	p = bytes.Clone(p)
	flip(p, f.n)
	f.n += int64(len(p))
	return f.ResponseWriter.Write(p)
}

// flip changes byte 5000 of a stream, which is at off.
func flip(p []byte, off int64) {
	if at := 5000 - off; at >= 0 && at < int64(len(p)) {
		p[at] ^= 4
	}
}

func TestFlippedBits(t *testing.T) {
	s := serve(t, t.TempDir())
	files := threeFiles(t)
	var requests atomic.Int64
	always := flipping(1, &requests)
	s.disturb.Store(&always)
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Push(t.Context(), pushOptions("v1", files...)); err == nil {
		t.Fatal("a damaged push succeeded")
	}
	sometimes := flipping(3, &requests)
	s.disturb.Store(&sometimes)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	mustPull(t, s.client(t), "v1", t.TempDir(), files)

	s.disturb.Store(&always)
	dir := t.TempDir()
	if _, err := c.Pull(t.Context(), transfer.PullOptions{Ref: transfer.Ref{ID: templateID}, Dir: dir}); err == nil {
		t.Fatal("a damaged pull succeeded")
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(dir, f.Name)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s has its final name: %v", f.Name, err)
		}
	}
}

// TestBitFlippedInTheStore damages a layer file on the registry's disk: no pull may finish.
func TestBitFlippedInTheStore(t *testing.T) {
	base := t.TempDir()
	s := serve(t, base)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 1 << 20})
	mustPush(t, s.client(t), pushOptions("v1", f))
	layers, _ := filepath.Glob(filepath.Join(base, "images_dir", "*.ank"))
	if len(layers) != 1 {
		t.Fatal(layers)
	}
	raw, err := os.ReadFile(layers[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[100] ^= 1
	if err := os.WriteFile(layers[0], raw, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Pull(t.Context(), transfer.PullOptions{Ref: transfer.Ref{ID: templateID}, Dir: t.TempDir()}); err == nil {
		t.Fatal("a damaged layer was pulled")
	}
}

// TestPushGoesOn cuts a push for good, restarts the registry and pushes again: what arrived is not sent again.
func TestPushGoesOn(t *testing.T) {
	base := t.TempDir()
	s := serve(t, base)
	files := threeFiles(t)
	var parts atomic.Int64
	var two sync.WaitGroup
	two.Add(2)
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.URL.Query().Has("off") {
			if parts.Add(1) > 2 {
				two.Wait()
				panic(http.ErrAbortHandler)
			}
			defer two.Done()
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Push(t.Context(), pushOptions("v1", files...)); err == nil {
		t.Fatal("the push was not cut")
	}
	c.Close()
	s.stop()

	s = serve(t, base)
	var sent atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.URL.Query().Has("off") {
			sent.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&count)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	first, all := sent.Load(), int64(0)
	sent.Store(0)
	o := pushOptions("v2", files...)
	o.Request.ID = "22222222-2222-4333-8444-555555555555"
	mustPush(t, s.client(t), o)
	if all = sent.Load(); first != all-2 {
		t.Fatalf("sent %d parts of %d, 2 were there", first, all)
	}
	mustPull(t, s.client(t), "v1", t.TempDir(), files)
}

// TestPullGoesOn cancels a pull in the middle and goes on in the same folder.
func TestPullGoesOn(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	files := []file{write(t, "disk.img", api.FileDisk, "raw", 170<<20, map[int64]int{0: 170 << 20})}
	result := mustPush(t, c, pushOptions("v1", files...))
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var blobs atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		// The index and one range for each of four connections; one more means that a range is done.
		if registryrest.IsBulk(r) && blobs.Add(1) == 6 {
			cancel()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	if _, err := c.Pull(ctx, transfer.PullOptions{Ref: transfer.Ref{ID: templateID}, Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.disturb.Store(nil)
	if _, err := os.Stat(filepath.Join(dir, "disk.img")); err == nil {
		t.Fatal("the file has its name before it is whole")
	}
	pulled := mustPull(t, c, "v1", dir, files)
	if pulled.Bytes >= result.Size*95/100 {
		t.Fatalf("%d of %d bytes moved again", pulled.Bytes, result.Size)
	}
}

// TestIdleConnectionIsLeft hangs one request: the client gives it up and asks again.
func TestIdleConnectionIsLeft(t *testing.T) {
	s := serve(t, t.TempDir())
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, Idle: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var bulk atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if registryrest.IsBulk(r) && bulk.Add(1) == 2 {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 1 << 20})
	mustPush(t, c, pushOptions("v1", f))
	bulk.Store(0)
	mustPull(t, c, "v1", t.TempDir(), []file{f})
	if bulk.Load() < 3 {
		t.Fatalf("%d bulk requests: none was repeated", bulk.Load())
	}
}

func TestManyFilesOneNegotiation(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	var negotiations atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPost && r.URL.Path == "/registry/v2/push" {
			negotiations.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	var files []file
	for i := range 60 {
		files = append(files, write(t, "f"+string(rune('a'+i/10))+string(rune('0'+i%10)), api.FileDisk, "raw", int64(i)*1000, map[int64]int{0: i * 10}))
	}
	mustPush(t, c, pushOptions("v1", files...))
	if negotiations.Load() != 1 {
		t.Fatalf("%d negotiations", negotiations.Load())
	}
	mustPull(t, c, "v1", t.TempDir(), files)
}

// TestLeftoversOfOtherPulls: whatever lies in the folder, a pull ends with the right bytes; what a crash left
// after the files had their names is not fetched again.
func TestLeftoversOfOtherPulls(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 3<<20, map[int64]int{0: 2 << 20})
	mustPush(t, c, pushOptions("v1", f))
	m, err := c.Manifest(t.Context(), transfer.Ref{ID: templateID})
	if err != nil {
		t.Fatal(err)
	}
	root, err := hex.DecodeString(m.Files[0].Layers[0].Root)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	ones := bytes.Repeat([]byte{0xff}, 4<<20)
	for name, test := range map[string]struct {
		left  map[string][]byte
		moves bool
	}{
		"partial without a journal":     {map[string][]byte{"disk.img.partial": ones}, true},
		"journal without a file":        {map[string][]byte{"disk.img.journal": append(root[:32:32], 3)}, true},
		"journal of another layer":      {map[string][]byte{"disk.img.partial": ones, "disk.img.journal": append(make([]byte, 32), 3)}, true},
		"journal of another length":     {map[string][]byte{"disk.img.partial": ones, "disk.img.journal": append(root[:32:32], 3, 3)}, true},
		"cut journal":                   {map[string][]byte{"disk.img.partial": ones, "disk.img.journal": root[:7]}, true},
		"older file of that name":       {map[string][]byte{"disk.img": ones}, true},
		"older file and partial":        {map[string][]byte{"disk.img": ones, "disk.img.partial": whole, "disk.img.journal": append(root[:32:32], 3)}, false},
		"all written, none renamed":     {map[string][]byte{"disk.img.partial": whole, "disk.img.journal": append(root[:32:32], 3)}, false},
		"renamed, journal not removed":  {map[string][]byte{"disk.img": whole, "disk.img.journal": append(root[:32:32], 3)}, false},
		"bits of frames there are none": {map[string][]byte{"disk.img.partial": whole, "disk.img.journal": append(root[:32:32], 0xff)}, false},
	} {
		dir := t.TempDir()
		for file, data := range test.left {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Log(name)
		if pulled := mustPull(t, c, "v1", dir, []file{f}); (pulled.Bytes > 0) != test.moves {
			t.Errorf("%s: %d bytes moved", name, pulled.Bytes)
		}
	}
}

// TestContentID: a node that was told a content id never gets other bytes.
func TestContentID(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	old := mustPush(t, c, pushOptions("v1", f))
	if err := c.Revert(t.Context(), transfer.Ref{ID: templateID}); err != nil {
		t.Fatal(err)
	}
	g := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 8000})
	fresh := mustPush(t, c, pushOptions("v1", g))
	number := 0
	ref := transfer.Ref{ID: templateID, Tag: "v1", Version: &number, ContentID: old.ContentID}
	if _, err := c.Pull(t.Context(), transfer.PullOptions{Ref: ref, Dir: t.TempDir()}); farm.CodeOf(err) != farm.CodeNoVersion {
		t.Fatalf("pull of reverted content: %v", err)
	}
	ref = transfer.Ref{ID: templateID, ContentID: fresh.ContentID}
	if _, err := c.Pull(t.Context(), transfer.PullOptions{Ref: ref, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
}
