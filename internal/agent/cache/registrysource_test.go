package cache_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// serve runs a registry for a test, behind other handlers.
func serve(
	t *testing.T, wrap ...func(http.Handler) http.Handler,
) (*httptest.Server, *transfer.Client, *registry.Registry) {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	h := rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler))
	for _, f := range wrap {
		h = f(h)
	}
	server := httptest.NewServer(h)
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		_ = core.Close()
	})
	return server, client, core
}

// TestFromARealRegistry pushes a version into a registry and has the cache pull it.
func TestFromARealRegistry(t *testing.T) {
	server, client, _ := serve(t)
	disk := make([]byte, 3*mib)
	chance := rand.NewChaCha8([32]byte{1})
	_, _ = chance.Read(disk[:mib]) // the rest is holes
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(api.TemplateConfig{
		RAM: "1G", HardDrives: []api.ConfigDrive{{File: "disk.img", Format: "raw"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := client.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{Name: "debian", Tag: "v1", Config: config},
		Files:   []transfer.PushFile{{Name: "disk.img", Path: path, Kind: api.FileDisk, Format: "raw"}},
	})
	if err != nil {
		t.Fatal(err)
	}

	source := cache.NewRegistry(transfer.Options{}, nil)
	defer source.Close()
	c := open(t, cache.Options{Dir: t.TempDir(), Source: source})
	want := cache.Ref{
		Registry: server.URL, TemplateID: pushed.ID, Name: "debian", Tag: "v1", ContentID: pushed.ContentID,
	}
	n, err := source.SpaceNeed(t.Context(), want, nil)
	if err != nil || n.Bytes < mib || n.Bytes > 3*mib || n.LazyBytes < mib {
		t.Errorf("the version is said to need %+v, %v", n, err)
	}
	if err := c.Fetch(t.Context(), want, nil); err != nil {
		t.Fatal(err)
	}
	got, v, err := c.Config(pushed.ContentID)
	if err != nil || got.RAM != "1G" || len(got.HardDrives) != 1 {
		t.Fatalf("config %+v, %v", got, err)
	}
	if data, err := os.ReadFile(filepath.Join(v.Dir, got.HardDrives[0].File)); err != nil || !bytes.Equal(data, disk) {
		t.Errorf("the disk is another one: %d bytes, %v", len(data), err)
	}
	lost := want
	lost.ContentID = "0000"
	if err := c.Fetch(t.Context(), lost, nil); farm.CodeOf(err) == "" || c.Has("0000") {
		t.Errorf("a version that does not exist: %v", err)
	}
}

// TestLazyFormats: only a version with raw disks can be pulled lazily, whether its configuration or its files tell the
// format.
func TestLazyFormats(t *testing.T) {
	server, client, _ := serve(t)
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, bytes.Repeat([]byte("disk"), mib), 0o600); err != nil {
		t.Fatal(err)
	}
	source := cache.NewRegistry(transfer.Options{}, nil)
	defer source.Close()
	for i, c := range []struct {
		name, drive, file string
		isLazy            bool
	}{
		{"disk.img", "raw", "raw", true},
		{"disk.img", "", "raw", true},
		{"disk.img", "", "", true},
		{"disk.img", "qcow2", "qcow2", false},
		{"disk.img", "qcow2", "raw", false},
		{"disk.img", "raw", "qcow2", false},
		{"disk.qcow2", "", "", false},
	} {
		config, err := json.Marshal(api.TemplateConfig{
			RAM: "1G", HardDrives: []api.ConfigDrive{{File: c.name, Format: c.drive}},
		})
		if err != nil {
			t.Fatal(err)
		}
		pushed, err := client.Push(t.Context(), transfer.PushOptions{
			Request: api.PushRequest{Name: fmt.Sprintf("disk-%d", i), Tag: "v1", Config: config},
			Files:   []transfer.PushFile{{Name: c.name, Path: path, Kind: api.FileDisk, Format: c.file}},
		})
		if err != nil {
			t.Fatal(err)
		}
		need, err := source.SpaceNeed(t.Context(), cache.Ref{
			Registry: server.URL, TemplateID: pushed.ID, Name: pushed.Name, Tag: "v1", ContentID: pushed.ContentID,
		}, nil)
		if err != nil || (need.LazyBytes > 0) != c.isLazy {
			t.Errorf("%+v: %+v, %v", c, need, err)
		}
	}
}
