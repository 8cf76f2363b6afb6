package controllerrest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// BenchmarkPoll measures the server's cost of an idle node's poll, over a real connection with a minimal
// client.
func BenchmarkPoll(b *testing.B) {
	ctx := context.Background()
	tables := record.NewTables(controllerrest.InstanceJSON)
	st, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c, err := controller.New(ctx, st, tables,
		controller.Options{Registry: shelf{}, RegistryAddress: "http://registry", Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(
		controllerrest.Handler(controllerrest.Options{Controller: c, RequestTimeout: time.Minute, Logger: log}))
	b.Cleanup(func() {
		server.Close()
		_ = st.Close()
	})
	joined, err := c.Nodes.Join(ctx,
		api.JoinRequest{Protocol: 1, Token: c.Nodes.JoinToken(), Name: "n", Host: "10.0.0.1"})
	if err != nil {
		b.Fatal(err)
	}
	hash := strings.Repeat("a", 64)
	poll := api.PollRequest{
		Protocol: 1, NodeID: joined.NodeID, BootID: joined.NodeID, InfoHash: hash, HeldHash: hash, Host: "10.0.0.1",
		Info: &api.NodeInfo{Arch: "amd64"}, HasHeld: true, Usage: &api.Usage{CPU: 0.25, RAM: 0.5, FreeMem: 32768},
	}
	if _, err := c.Link.Poll(ctx, joined.Credential, poll, 0); err != nil {
		b.Fatal(err)
	}
	poll.Info, poll.HasHeld = nil, false
	body, _ := json.Marshal(poll)
	request := fmt.Sprintf(
		"POST %s?wait=0s HTTP/1.1\r\nHost: x\r\nUser-Agent: buildnode\r\nContent-Length: %d\r\nAuthorization: Bearer "+
			"%s\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s",
		api.PathPoll, len(body), joined.Credential, body)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	from := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		length := 0
		for text := "?"; text != "\r\n"; {
			if text, err = from.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
			_, _ = fmt.Sscanf(text, "Content-Length: %d", &length)
		}
		answer := make([]byte, length)
		if _, err := io.ReadFull(from, answer); err != nil || !strings.Contains(string(answer), `"OK"`) {
			b.Fatalf("%s (%v)", answer, err)
		}
	}
}
