package controllerrest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// benchServer serves a cloud of n instances, running on one node or waiting.
func benchServer(b *testing.B, n int, running bool) string {
	b.Helper()
	ctx := context.Background()
	tables := record.NewTables(controllerrest.InstanceJSON)
	st, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	for range n {
		inst := benchInstance(running)
		if err := st.Commit(ctx, store.Put(tables.Instances, inst.ID, inst, store.IfAbsent)); err != nil {
			b.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	c, err := controller.New(ctx, st, tables,
		controller.Options{Registry: shelf{}, RegistryAddress: "http://registry", Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(
		controllerrest.Handler(controllerrest.Options{Controller: c, RequestTimeout: time.Minute, Logger: log}))
	b.Cleanup(server.Close)
	return server.URL
}

func benchInstance(running bool) *farm.Instance {
	now := time.Now().UTC()
	id, _ := uuid.NewV7()
	inst := &farm.Instance{
		ID: id.String(), State: farm.Scheduling, Registry: "http://10.0.0.1:8089", Created: now, Updated: now,
		ExternalID: "http://ci.example/job/" + id.String(), Owner: "ci.example",
		Template: farm.TemplateRef{
			ID: templateID, Name: "base", Tag: "v1", ContentID: "c", Arch: "amd64", CPUs: 2,
			MemoryMB: 4096,
		},
		Options: farm.StartOptions{Priority: 1000},
	}
	if running {
		inst.State, inst.NodeID, inst.NodeName, inst.Claim = farm.Started, uuid.NewString(), "node-1", uuid.NewString()
		inst.VM = &farm.VMInfo{
			UUID: uuid.NewString(), Name: "mgmtManaged-base-1732222222222222222", Status: farm.VMRunning, CPUs: 2,
			MemoryMB: 4096,
			IP:       "10.0.2.15", HostIP: "10.1.1.1",
			Ports: []farm.Port{{Name: "ssh", GuestPort: 22, HostPort: 10022, Protocol: "tcp"}},
		}
	}
	return inst
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		for _, running := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d/running=%t", n, running), func(b *testing.B) {
				benchGet(b, benchServer(b, n, running)+"/api/v1/vm")
			})
			b.Run(fmt.Sprintf("%d/running=%t/gzip", n, running), func(b *testing.B) {
				benchGet(b, benchServer(b, n, running)+"/api/v1/vm", "Accept-Encoding", "gzip")
			})
			b.Run(fmt.Sprintf("%d/running=%t/filter", n, running), func(b *testing.B) {
				benchGet(b, benchServer(b, n, running)+"/api/v1/vm?filter=state:error%20name:*-1*%20age%3E10m")
			})
		}
	}
}

func benchGet(b *testing.B, url string, header ...string) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	get := func() int64 {
		req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	b.SetBytes(get())
	for b.Loop() {
		get()
	}
}

// BenchmarkStart requests single instances over real connections; nothing is placed.
func BenchmarkStart(b *testing.B) {
	url := benchServer(b, 0, false) + "/api/v1/vm"
	const body = `{"vmid":"` + templateID +
		`","tag":"v1+x","external_id":"http://ci.example/job/1","name":"n","count":1}`
	b.ReportAllocs()
	for b.Loop() {
		req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// BenchmarkSearch searches 20,000 instances and 1,000 nodes.
func BenchmarkSearch(b *testing.B) {
	ctx := context.Background()
	tables := record.NewTables(controllerrest.InstanceJSON)
	st, err := store.Open(ctx, mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	for i := range 20000 {
		inst := benchInstance(i%2 == 0)
		inst.Name, inst.Metadata = fmt.Sprint("job-", i), map[string]any{"branch": fmt.Sprint("release/", i%50)}
		if err := st.Commit(ctx, store.Put(tables.Instances, inst.ID, inst, store.IfAbsent)); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 1000 {
		node := &farm.Node{ID: uuid.NewString(), Name: fmt.Sprint("mac-", i), Host: fmt.Sprint("10.0.0.", i%250)}
		if err := st.Commit(ctx, store.Put(tables.Nodes, node.ID, node, store.IfAbsent)); err != nil {
			b.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	c, err := controller.New(ctx, st, tables,
		controller.Options{Registry: shelf{}, RegistryAddress: "http://registry", Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	handler := controllerrest.Handler(controllerrest.Options{Controller: c, RequestTimeout: time.Minute, Logger: log})
	for _, path := range []string{
		"search?q=release/49", "search?q=mac-99", "search?q=nothing", "search?q=job+ci.example",
		"filter/complete?resource=instances&q=rel", "filter/complete?resource=nodes&q=name:mac-9",
	} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/"+path, nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
