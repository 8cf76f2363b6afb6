package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/rig"
)

func newBench(t *testing.T, args ...string) *bench {
	t.Helper()
	b, _, err := program.Parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return b.(*bench)
}

// TestEveryRowHasAPart: each row is measured by one part, and describes how.
func TestEveryRowHasAPart(t *testing.T) {
	measured := map[string]int{}
	for _, p := range newBench(t).parts() {
		for _, name := range p.Rows {
			measured[name]++
		}
	}
	for _, r := range rows {
		if measured[r.Name] != 1 || r.How == "" || r.Need < 1 {
			t.Errorf("row %s is measured by %d parts; how: %q", r.Name, measured[r.Name], r.How)
		}
	}
	if len(measured) != len(rows) {
		t.Errorf("the parts have rows that are not in the table: %v", measured)
	}
}

func set(id, state, node string) string {
	if node != "" {
		node = `,"node_id":"` + node + `"`
	}
	return fmt.Sprintf(`{"type":"set","instance":{"instance_id":%q,"external_id":null,"vm":{"instance_state":%q%s}}}`,
		id, state, node)
}

// TestObserver: the counts follow the watch, in whatever order states come, and waiters are
// notified immediately.
func TestObserver(t *testing.T) {
	o := &observer{seen: map[string]stateOf{}, done: make(chan struct{})}
	two := o.when(started(2))
	steps := []struct {
		line string
		want counts
	}{
		{set("a", "Scheduling", ""), counts{all: 1}},
		{set("b", "Scheduling", "n1"), counts{all: 2, placed: 1}},
		{set("a", "Pulling", "n1"), counts{all: 2, placed: 2}},
		{set("a", "Started", "n1"), counts{all: 2, placed: 2, started: 1}},
		{set("a", "Started", "n1"), counts{all: 2, placed: 2, started: 1}},
		{`{"type":"ping"}`, counts{all: 2, placed: 2, started: 1}},
		{set("b", "Error", "n1"), counts{all: 2, placed: 2, started: 1, failed: 1}},
		{`{"type":"gone","instance_id":"b"}`, counts{all: 1, placed: 1, started: 1}},
		{`{"type":"gone","instance_id":"a"}`, counts{}},
	}
	for i, s := range steps {
		if len(two) > 0 != (i > 6) {
			t.Errorf("before step %d the wait is over: %v", i, len(two) > 0)
		}
		if err := o.line([]byte(s.line)); err != nil || o.counts != s.want {
			t.Errorf("after step %d: %+v, want %+v; %v", i, o.counts, s.want, err)
		}
	}
	if _, err := o.reached(t.Context(), "two", two); err != nil {
		t.Error(err)
	}
	if at := o.when(func(c counts) bool { return c.all == 0 }); len(at) != 1 {
		t.Error("what is so already is waited for")
	}
	if err := o.line([]byte(`{"status":"FAIL"}`)); err == nil {
		t.Error("a line that is none of a watch is taken")
	}
	o.err = errors.New("cut")
	close(o.done)
	if _, err := o.reached(t.Context(), "more", o.when(started(9))); err == nil ||
		!strings.Contains(err.Error(), "cut") {
		t.Errorf("a wait outlives the watch: %v", err)
	}
}

// TestObserve follows a watch over HTTP.
func TestObserve(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s\n{\"type\":\"synced\"}\n", set("a", "Started", "n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	o, err := observe(t.Context(), loadgen.NewClient(server.URL, 1))
	if err != nil || !slices.Equal(o.ids(), []string{"a"}) {
		t.Fatalf("%v, %v", o.ids(), err)
	}
	o.close()
}

func TestCallers(t *testing.T) {
	var calls, under, most atomic.Int64
	seen := make([]atomic.Int64, 100)
	err := spread(t.Context(), 4, len(seen), func(_ context.Context, i int) error {
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		time.Sleep(time.Millisecond)
		seen[i].Add(1)
		return nil
	})
	for i := range seen {
		if seen[i].Load() != 1 {
			t.Errorf("call %d was made %d times", i, seen[i].Load())
		}
	}
	if err != nil || most.Load() > 4 || most.Load() < 2 {
		t.Errorf("%d calls at the same time, %v", most.Load(), err)
	}
	perSecond, ids, err := rate(t.Context(), 2, 100*time.Millisecond, func(context.Context) ([]string, error) {
		time.Sleep(10 * time.Millisecond)
		return []string{fmt.Sprint(calls.Add(1))}, nil
	})
	if err != nil || int64(len(ids)) != calls.Load() || perSecond > 200 || perSecond < 20 {
		t.Errorf("%v a second, %d ids of %d calls, %v", perSecond, len(ids), calls.Load(), err)
	}
	fail := errors.New("no")
	if err := spread(t.Context(), 2, 1000, func(context.Context, int) error { return fail }); !errors.Is(err, fail) {
		t.Errorf("a failed call gives %v", err)
	}
}

// TestRevision reads the revision out of a database as etcd writes it.
func TestRevision(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("key"))
		for _, rev := range []uint64{2, 70000, 258} {
			key := append(binary.BigEndian.AppendUint64(nil, rev), '_', 0, 0, 0, 0, 0, 0, 0, 1)
			err = errors.Join(err, bucket.Put(key, []byte("x")))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if rev, err := lastRevision(path); err != nil || rev != 70000 {
		t.Errorf("revision %d, %v", rev, err)
	}
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if rev, err := lastRevision(path); err == nil {
		t.Errorf("a torn copy has revision %d", rev)
	}
}

// TestBare runs the bare handler and makes records with it.
func TestBare(t *testing.T) {
	address, err := rig.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveBare(ctx, address, t.TempDir()) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := loadgen.NewClient("http://"+address, 4)
	defer client.Close()
	body, err := json.Marshal(loadgen.CreateRequest{Template: "t", Tag: "v1", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 200 {
		if ids, err = createWith(t.Context(), client, body); err == nil {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if err != nil || len(ids) != 1 || len(ids[0]) != 36 {
		t.Fatalf("%v, %v", ids, err)
	}
	if _, err := client.Call(t.Context(), http.MethodDelete, loadgen.InstancesPath, nil); err != nil {
		t.Error(err)
	}
}

// TestUsageNeedsAllProcesses: a server whose nodes have ended has nothing to do, and its usage then is
// not a figure.
func TestUsageNeedsAllProcesses(t *testing.T) {
	start := func(name, script string) *rig.Process {
		p := rig.NewProcess(t.TempDir(), name, "sh", "-c", script)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	server := start("server", "exec sleep 600")
	defer func() { _ = server.Kill() }()
	for script, want := range map[string]string{
		"exec sleep 600": "", "echo out of memory; exit 1": "fleet has ended",
	} {
		s := &stage{cloud: &rig.Cloud{Process: server}, fleet: start("fleet", script)}
		_, err := s.usage(t.Context(), 500*time.Millisecond)
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) && want != "" {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
		_ = s.fleet.Kill() // it may have ended
	}
}

// TestWhole: an instance in Error ends a wait and spoils what was waited for.
func TestWhole(t *testing.T) {
	o := &observer{seen: map[string]stateOf{}}
	for state, want := range map[string]bool{"Started": true, "Error": false} {
		if err := o.line([]byte(set("a", state, "n"))); err != nil {
			t.Fatal(err)
		}
		if err := o.whole(); (err == nil) != want {
			t.Errorf("with one that is %s: %v", state, err)
		}
	}
}
