package buildyard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/cli/storecommand"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// fillStore writes the records of a big cloud into a data directory: instances that run, 50 on each node.
func fillStore(t testing.TB, dataDir string, instances int) {
	t.Helper()
	b, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedOptions{Dir: storecommand.EmbeddedDir(dataDir)})
	if err != nil {
		t.Fatal(err)
	}
	tables := record.NewTables(nil)
	s, err := store.Open(t.Context(), b, store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(errors.Join(err, b.Close()))
	}
	var batch []store.Change
	flush := func() {
		if len(batch) == 0 {
			return
		}
		if err := s.Commit(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
		batch = nil
	}
	now, node := time.Now().UTC(), &farm.Node{}
	for i := range instances {
		if i%50 == 0 {
			node = &farm.Node{
				ID: uuid.NewString(), Name: fmt.Sprintf("node-%05d", i/50), Host: "10.0.0.1", State: farm.NodeActive,
				StateSince: now, Capacity: 60, CapacityMode: farm.CapacityByVMs, Joined: now,
			}
			batch = append(batch, store.Put(tables.Nodes, node.ID, node, store.Any))
		}
		inst := bigInstance(node, i, now)
		if batch = append(batch, store.Put(tables.Instances, inst.ID, inst, store.Any)); len(batch) >= 60 {
			flush()
		}
	}
	flush()
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// bigInstance makes a record of about 1.5 KB, as a CI plugin's start leaves it.
func bigInstance(node *farm.Node, i int, now time.Time) *farm.Instance {
	return &farm.Instance{
		ID: uuid.Must(uuid.NewV7()).String(), Name: fmt.Sprintf("job-%06d", i),
		ExternalID: fmt.Sprintf("http://ci.example/job/%06d", i),
		Metadata:   map[string]any{"project": "example/project", "branch": "main", "attempt": 1}, State: farm.Started,
		Template: farm.TemplateRef{
			ID: "c0ffee00-0000-4000-8000-000000000001", Name: "build-image", Tag: "v1",
			ContentID: fmt.Sprintf("%064x", 1),
			Arch:      "amd64", Size: 20 << 30, CPUs: 2, MemoryMB: 4096,
		},
		Options: farm.StartOptions{Priority: 1000, Script: make([]byte, 300), ScriptMonitoring: true},
		Owner:   "ci.example", Registry: "http://registry.example:8089", NodeID: node.ID, NodeName: node.Name,
		Claim: uuid.NewString(), PullProgress: 1, StatusNumber: 4, Created: now, Updated: now, Placed: now,
		Started: now,
		VM: &farm.VMInfo{UUID: uuid.NewString(), Name: fmt.Sprintf("mgmtManaged-job-%06d",
			i), Status: farm.VMRunning},
	}
}

// BenchmarkRestart measures the time from the start of the service over 100,000 records to its first readiness.
func BenchmarkRestart(b *testing.B) {
	dir := b.TempDir()
	if keep := os.Getenv("BUILDYARD_RESTART_DIR"); keep != "" {
		dir = keep // keeps the store, to examine it with a separate program
	}
	if _, err := os.Stat(filepath.Join(dir, "c")); err != nil {
		fillStore(b, filepath.Join(dir, "c"), 100_000)
	}
	for b.Loop() {
		s, stop := startUp(b, dir)
		for ready := false; !ready; {
			resp, err := http.Get(s.URL() + "/readyz")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				ready = resp.StatusCode == http.StatusOK
				_ = resp.Body.Close()
			}
		}
		b.StopTimer()
		stop()
		b.StartTimer()
	}
}
