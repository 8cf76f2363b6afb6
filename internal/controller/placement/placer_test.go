package placement

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// open is a Blocker that blocks nothing.
type open struct{}

var _ Blocker = open{}

func (open) Blocked(*farm.Instance) bool { return false }

func (open) Reasons() func(*farm.Instance) string { return nil }

// TestNewTermForgetsOldDecisions begins a leader term while a decision of the one before was not
// written yet.
func TestNewTermForgetsOldDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := record.NewTables(nil)
		st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables.All()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}()
		db := record.DB{Store: record.NewStore(st,
			nil), Tables: tables, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		p := New(db, Options{
			Blocker: open{}, Others: func(string) OtherUsage { return OtherUsage{} }, Settled: time.Now(),
		})
		node := &farm.Node{
			ID: "node", Name: "one", State: farm.NodeActive, Capacity: 1,
			CapacityMode: farm.CapacityByVMs,
		}
		inst := &farm.Instance{
			ID: "instance", State: farm.Scheduling, GroupID: "elsewhere", Created: time.Now(),
			Template: farm.TemplateRef{Arch: "amd64", CPUs: 1},
			Options:  farm.StartOptions{Priority: farm.DefaultPriority},
		}
		err = st.Commit(t.Context(), store.Put(tables.Nodes, node.ID, node, store.IfAbsent),
			store.Put(tables.Infos, node.ID, &farm.NodeInfo{NodeID: node.ID, Arch: "amd64"}, store.IfAbsent),
			store.Put(tables.Instances, inst.ID, inst, store.IfAbsent))
		if err != nil {
			t.Fatal(err)
		}
		p.Load()

		for _, forget := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			term := record.NewTerm(st, time.Now(), ctx.Done(), cancel)
			p.Begin(term)
			old := p.Decide(inst.ID, node.ID)
			p.mu.Lock()
			p.found = append(p.found, old)
			p.mu.Unlock()
			if forget {
				p.Finish(term)
				p.Begin(term)
			}
			done := make(chan struct{})
			go func() { defer close(done); p.Run(ctx, term) }()
			time.Sleep(placeRetry)
			cancel()
			<-done
			if now, _, _ := tables.Instances.Get(inst.ID); (now.NodeID == "") != forget {
				t.Errorf("another term began: %t, the instance is on node %q", forget, now.NodeID)
			}
		}
	})
}
