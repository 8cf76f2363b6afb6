package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli/buildyard/cloudtest"
)

// The templates of the cloud, with the tags v1 and v2; the first is called debian.
const (
	debian = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	old    = "0f1a9a44-1d5c-4f5a-8f0e-8e2a7a5b6c01" // to be deleted
	older  = "0f1a9a44-1d5c-4f5a-8f0e-8e2a7a5b6c02"
)

// The addresses of the cloud, as the examples have them.
const (
	controllerAt = "http://build.example:8090"
	registryAt   = "http://build.example:8089"
)

// TestMain runs the tests with a cloud, whose address is build.example through a proxy.
func TestMain(m *testing.M) {
	code, err := runWithCloud(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the cloud of the tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runWithCloud(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "cloud")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	s, stop, err := startCloud(dir, func(proxy string) error {
		return errors.Join(os.Setenv("HTTP_PROXY", proxy), os.Setenv("NO_PROXY", "127.0.0.1,localhost"))
	})
	if err != nil {
		return 1, err
	}
	defer stop()
	cloud = s
	return m.Run(), nil
}

// cloud is the cloud of the tests.
var cloud *cloudtest.Cloud

// startCloud runs controller, registry, simulated nodes and a proxy to the services until stop is called. It calls
// use with the URL of the proxy before this process makes a request: package http reads HTTP_PROXY only once.
func startCloud(dir string, use func(proxy string) error) (s *cloudtest.Cloud, stop func(), err error) {
	s, end, err := cloudtest.Open(dir, map[string]string{
		"SVC_MANAGE_MAC_ADDRESSES": "true", "SVC_MAC_ADDR_RANGE": "52:54:00:00:00:00-52:54:00:00:00:FF",
		"SVC_ALLOWED_HOSTS": "build.example",
	})
	if err != nil {
		return nil, nil, err
	}
	proxy := httptest.NewServer(
		throughTo(map[string]string{"build.example:8090": s.URL(), "build.example:8089": s.RegistryURL()}))
	closeServices := func() {
		proxy.Close()
		end()
	}

	err = use(proxy.URL)
	for id, name := range map[string]string{debian: "debian", old: "old", older: "older"} {
		if err == nil {
			err = s.Push(context.Background(), dir, id, name, nil)
		}
	}
	if err != nil {
		closeServices()
		return nil, nil, err
	}
	leave := s.Join(fleet.Options{
		NamePrefix: "good", NodeCount: 2, Capacity: 20, RealPulls: true, DataDir: filepath.Join(dir, "nodes"),
		USBDevices: []api.USBDevice{{Name: "phone", Location: "1-1"}},
	})
	return s, func() {
		leave()
		closeServices()
	}, nil
}

// throughTo is a proxy to services by the requested addresses.
func throughTo(services map[string]string) http.Handler {
	return &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, _ := url.Parse(services[r.In.Host])
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// controller returns a client of the cloud's controller.
func controller(t *testing.T, o client.Options) *client.Controller {
	t.Helper()
	c, err := client.NewController(controllerAt, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nodeCalled waits for a node of the cloud and returns its ID.
func nodeCalled(t *testing.T, c *client.Controller, name string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		list, err := c.Nodes(t.Context(), client.ListOptions{Filter: "state:active name:" + name})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			return list[0].NodeID
		}
	}
	t.Fatalf("there is no node %s", name)
	return ""
}
