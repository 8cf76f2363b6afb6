package transfer_test

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
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

func serve(t testing.TB, base string) *server {
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

func (s *server) client(t testing.TB) *transfer.Client {
	t.Helper()
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, IdleTimeout: 2 * time.Second})
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
func write(t testing.TB, name, kind, format string, size int64, data map[int64]int) file {
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

func sum(t testing.TB, path string) [sha256.Size]byte {
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
		write(t, "disk.img", api.FileDisk, "raw", 48<<20+1234,
			map[int64]int{0: 1 << 20, 5<<20 + 4096: 3 << 20, 40 << 20: 100, 48<<20 + 1000: 234}),
		write(t, "data.qcow2", api.FileDisk, "qcow2", 21<<20, map[int64]int{0: 21 << 20}),
		write(t, "memory.state", api.FileState, "", 3<<20, map[int64]int{0: 2 << 20}),
	}
}

func pushOptions(tag string, files ...file) transfer.PushOptions {
	o := transfer.PushOptions{Request: api.PushRequest{
		ID: templateID, Name: "debian-13", Tag: tag, Arch: "amd64", NVRAM: []byte("variables"),
		Config: json.RawMessage(
			`{"ram":"2G","cpu":{"cores":2},"hard_drives":[{"file":"disk.img"}],"own":{"kept":[1,2.5,"x",null,true]}}`),
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
	result, err := c.Pull(t.Context(),
		transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID, Tag: tag}, Dir: dir})
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

// isBulk reports whether the body of a request is a file.
func isBulk(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/registry/v2/blob/") ||
		r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/registry/v2/push/")
}
