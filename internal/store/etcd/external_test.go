package etcd

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store/storetest"
)

// freeURL returns an address of this machine with an unused port.
func freeURL(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := url.URL{Scheme: "http", Host: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// serve starts a member that listens on the loopback address, as a cluster elsewhere would.
func serve(t *testing.T) (endpoint string) {
	t.Helper()
	address := freeURL(t)
	cfg := memberConfig(EmbeddedOptions{Logger: testLogger(t)}, t.TempDir())
	cfg.MaxTxnOps = 128 // their default, not ours
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{address}, []url.URL{address}
	member, err := startEtcd(cfg, newMemberFailure())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	if err := awaitReady(t.Context(), member, newMemberFailure()); err != nil {
		t.Fatal(err)
	}
	return address.String()
}

func TestConformanceExternal(t *testing.T) {
	b, err := ConnectExternal(t.Context(), ExternalOptions{Endpoints: []string{serve(t)}, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, subject(b))
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestExternalThatDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := ConnectExternal(ctx, ExternalOptions{Endpoints: []string{"http://127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v, want an error that names the endpoint", err)
	}
	if _, err := ConnectExternal(ctx, ExternalOptions{}); err == nil {
		t.Error("connected to no endpoints")
	}
}
