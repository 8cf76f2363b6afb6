package controller

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/election"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// term returns the leader term of a replica that holds the lease.
func (c *cloud) term() *record.Term {
	c.t.Helper()
	synctest.Wait()
	term := c.placer.Term()
	if term == nil {
		c.t.Fatal("this replica does not hold the lease")
	}
	return term
}

// formerTerm takes the lease from its holder and returns the writer of the leader term that ended
// so. The writer does not know that: only the store can refuse its writes.
func (c *cloud) formerTerm() *record.Term {
	c.t.Helper()
	old := c.term()
	kv, err := c.backend.Get(c.t.Context(), store.DefaultPrefix+"/lease/"+election.Lease)
	if err != nil {
		c.t.Fatal(err)
	}
	c.backend.ExpireLease(store.Fence{Key: kv.Key, CreateRev: kv.ModRev})
	return record.NewTerm(old.Fenced(), old.Since(), nil, func() {})
}

// put writes a record as it is.
func put[T any](c *cloud, t *store.Table[T], id string, v *T) {
	c.t.Helper()
	if err := c.store.Commit(c.t.Context(), store.Put(t, id, v, store.Any)); err != nil {
		c.t.Fatal(err)
	}
}

// TestTerminatedWhileItIsPlaced ends an instance between the decision for a node and its write.
func TestTerminatedWhileItIsPlaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		term := c.term()
		id := c.mustStart(StartRequest{GroupID: c.mustGroup("elsewhere", nil).ID})[0]
		a := c.join("one", 1)
		some := []placement.Decision{c.placer.Decide(id, a.id)}
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		c.placer.Write(t.Context(), term, some)
		if inst, err := c.Instances.Get(t.Context(), id); err != nil || inst.NodeID != "" ||
			inst.State != farm.Terminating {
			t.Errorf("instance is %s on node %q, %v", inst.State, inst.NodeID, err)
		}
	})
}

// prunable creates something to do for each job of the leader.
func (c *cloud) prunable() {
	old := c.now().Add(-30 * 24 * time.Hour)
	node, _, _ := c.tables.Nodes.Get(c.join("one", 1).id)
	node = node.Clone()
	node.Groups, node.Update = []string{"gone"}, &farm.AgentUpdate{Version: "1.0.0"}
	put(c, c.tables.Nodes, node.ID, node)
	put(c, c.tables.Infos, node.ID, &farm.NodeInfo{NodeID: node.ID, Arch: "amd64", OS: "linux", AgentVersion: "1.0.0"})
	put(c, c.tables.Saves, "pending",
		&farm.SaveRequest{ID: "pending", Status: farm.SavePending, Created: old, Updated: old})
	put(c, c.tables.Saves, "ended",
		&farm.SaveRequest{ID: "ended", Status: farm.SaveSucceeded, Created: old, Updated: old})
	past := &farm.InstanceHistory{ID: record.NewID(), Created: old, Finished: old}
	put(c, c.tables.History, record.HistoryKey(past), past)
	put(c, c.tables.Scripts, "unused", &record.Script{Size: 1})
	put(c, c.tables.CacheJobs, "ended", &farm.CacheJob{ID: "ended", EndedAt: old})
	put(c, c.tables.Removed, "node", &record.RemovedNode{At: old})
	put(c, c.tables.Released, "node.vm", &record.ReleasedOrphan{At: old})
	put(c, c.tables.Idempotency, "key", &record.IdempotencyRecord{At: old})
	put(c, c.tables.JoinTokens, "expired", &record.JoinToken{Expires: old})
	put(c, c.tables.Scans, "node", &record.NodeScan{})
	put(c, c.tables.Findings, "template/content", &record.VersionFindings{Found: "CVE-1\n"})
	put(c, c.tables.Settings, "deletion-x",
		&record.Setting{Deletion: &record.Deletion{Template: templateID, At: old}})
	put(c, c.tables.Digests, "replica", &record.Digest{No: 1})
	put(c, c.tables.Series, "60-0", &record.SeriesRecord{Step: 60})
	synctest.Wait()
}

// TestLeaderJobsAreFenced runs each job of the leader on a replica that has lost the lease without
// noticing.
func TestLeaderJobsAreFenced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.prunable()
		late := c.formerTerm()
		for _, job := range c.jobs() {
			if err := job.Do(t.Context(), late, c.now().Add(10*time.Minute)); !errors.Is(err, store.ErrFenced) {
				t.Errorf("%s: %v; it must try to write, and be refused", job.Name, err)
			}
		}
	})
}

// TestReconcilerIsFenced does the same with the work for records that are due.
func TestReconcilerIsFenced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := c.mustStart(StartRequest{})[0]
		a := c.join("one", 1)
		c.mustStart(StartRequest{})
		c.stop()
		c.start(Options{NodeTimeout: time.Hour})
		late := c.formerTerm()
		db := c.db // two minutes ahead: the controller, which is elected again, must not find anything due
		db.Now = func() time.Time { return c.now().Add(2 * time.Minute) }
		r := reconcile.New(db, late, c.reconcileOptions(late))
		outlived, _, _ := c.tables.Instances.Get(id)
		outlived = outlived.Clone()
		outlived.Expires = c.now().Add(time.Minute)
		put(c, c.tables.Instances, id, outlived)
		if _, err := r.CheckInstance(t.Context(), id); !errors.Is(err, store.ErrFenced) {
			t.Errorf("an instance at the end of its life: %v", err)
		}
		node, _, _ := c.tables.Nodes.Get(a.id)
		states := nodes.NewStateReconciler(db, late, nodes.StateOptions{
			LastContact: func(string) time.Time { return time.Time{} }, Since: func(t time.Time) time.Time { return t },
			MarkLost: func(i *farm.Instance, now time.Time) *farm.Instance { // also where the leader has marked it
				i = i.Clone()
				i.NodeLostAt = now
				return i
			},
		})
		if _, err := states.Reconcile(t.Context(), node); !errors.Is(err, store.ErrFenced) {
			t.Errorf("a node without contact: %v", err)
		}
		offline := node.Clone()
		offline.State = farm.NodeOffline
		put(c, c.tables.Nodes, a.id, offline)
		if _, err := states.Reconcile(t.Context(), offline); !errors.Is(err, store.ErrFenced) {
			t.Errorf("the instances of a node that is offline: %v", err)
		}
		now, _, _ := c.tables.Nodes.Get(a.id)
		if inst, _, _ := c.tables.Instances.Get(id); inst.State == farm.Terminating || now.State != offline.State {
			t.Errorf("instance %s, node %s after all", inst.State, now.State)
		}
	})
}

// TestMACsAreFenced assigns an address after the leader term has ended.
func TestMACsAreFenced(t *testing.T) {
	inManaged(t, three, func(t *testing.T, c *cloud) {
		if err := c.MACs.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.mustStart(StartRequest{})
		late := c.formerTerm()
		if err := c.MACs.Populate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.MACs.Serve(t.Context(), late); !errors.Is(err, store.ErrFenced) {
			t.Errorf("a late address: %v", err)
		}
	})
}

// TestLeaderCodeHasNoOtherWriter reads the sources: a function that gets a leader term, or belongs
// to the reconciler, writes through that term alone.
func TestLeaderCodeHasNoOtherWriter(t *testing.T) {
	may := map[string]bool{"writeBatch": true} // what lost the race becomes pending
	set := token.NewFileSet()
	leaders := 0
	for _, dir := range append(subdirectories(t), ".") {
		product := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
		packages, err := parser.ParseDir(set, dir, product, 0) //nolint:staticcheck // no build tags here
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packages {
			for _, file := range p.Files {
				for _, d := range file.Decls {
					f, ok := d.(*ast.FuncDecl)
					if !ok || !ofLeader(f) || may[f.Name.Name] {
						continue
					}
					leaders++
					for _, at := range unfenced(f.Body) {
						t.Errorf("%s: %s writes past the fence of its leader term", set.Position(at), f.Name.Name)
					}
				}
			}
		}
	}
	if leaders < 30 {
		t.Errorf("only %d functions of the leader were found", leaders)
	}
}

// subdirectories returns the directories of the parts of a controller.
func subdirectories(t *testing.T) (dirs []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	return dirs
}

// ofLeader reports whether a function has a leader term or a reconciler.
func ofLeader(f *ast.FuncDecl) bool {
	fields := f.Type.Params.List
	if f.Recv != nil {
		fields = append(fields, f.Recv.List...)
	}
	for _, p := range fields {
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if name := types.ExprString(star.X); name == "record.Term" || name == "Reconciler" {
				return true
			}
		}
	}
	return false
}

// unfenced returns the places where a body writes with the plain store, or passes it on.
func unfenced(body *ast.BlockStmt) (at []token.Pos) {
	isStore := func(e ast.Expr) bool {
		s, ok := e.(*ast.SelectorExpr)
		return ok && strings.EqualFold(s.Sel.Name, "store")
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			for _, arg := range n.Args {
				if isStore(arg) {
					at = append(at, arg.Pos())
				}
			}
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Commit" && isStore(s.X) {
				at = append(at, n.Pos())
			}
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if isStore(e) {
					at = append(at, e.Pos())
				}
			}
		}
		return true
	})
	return at
}
