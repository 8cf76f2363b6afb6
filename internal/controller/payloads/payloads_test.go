package payloads

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestScriptIsDeletedWithItsLastInstance: instances of one start share a script, which is separate
// from their options.
func TestScriptIsDeletedWithItsLastInstance(t *testing.T) {
	db := recordtest.Open(t)
	p := New(db, 0)
	options := farm.StartOptions{Script: []byte("true")}
	changes := p.SeparateScript(&options, "caller")
	if len(options.Script) > 0 || options.ScriptID == "" {
		t.Fatalf("options %+v", options)
	}
	first := &farm.Instance{ID: "1", Options: options}
	second := &farm.Instance{ID: "2", Options: options}
	for _, inst := range []*farm.Instance{first, second} {
		changes = append(changes, store.Put(db.Tables.Instances, inst.ID, inst, store.IfAbsent))
	}
	commit(t, db, changes...)
	if text, err := p.Script(t.Context(), first); err != nil || string(text) != "true" {
		t.Errorf("script %q, %v", text, err)
	}

	if got := p.DeleteScript(first); len(got) > 0 {
		t.Errorf("%d changes although another instance has the script", len(got))
	}
	commit(t, db, store.Delete(db.Tables.Instances, "1", store.Any))
	if err := p.PruneScripts(t.Context(), recordtest.Term(db), db.Now()); err != nil || db.Tables.Scripts.Len() != 1 {
		t.Errorf("%d scripts, %v", db.Tables.Scripts.Len(), err)
	}
	commit(t, db, append(p.DeleteScript(second), store.Delete(db.Tables.Instances, "2", store.Any))...)
	if n := db.Tables.Scripts.Len(); n != 0 {
		t.Errorf("%d scripts are left", n)
	}
}

// TestPruneScripts: a script without an instance is removed.
func TestPruneScripts(t *testing.T) {
	db := recordtest.Open(t)
	p := New(db, 0)
	commit(t, db, store.Put(db.Tables.Scripts, "unused", &record.Script{Size: 1, Text: []byte("x")}, store.IfAbsent))
	if err := p.PruneScripts(t.Context(), recordtest.Term(db), db.Now()); err != nil || db.Tables.Scripts.Len() != 0 {
		t.Errorf("%d scripts, %v", db.Tables.Scripts.Len(), err)
	}
}

// TestOutputIsBounded: the oldest output is removed, and chunks without a request after some time.
func TestOutputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, most = 1 << 10, 10
		const requests = most + 3
		db := recordtest.Open(t)
		p, term := New(db, most*size), recordtest.Term(db)
		text := strings.Repeat("x", size)
		for i := range requests {
			s := &farm.SaveRequest{
				ID: fmt.Sprintf("%08d", i), Status: farm.SaveSucceeded, Script: &farm.ScriptResult{}, StdoutBytes: size,
			}
			if err := p.StoreOutput(t.Context(), s.ID, &api.ScriptStatus{Stdout: text}); err != nil {
				t.Fatal(err)
			}
			commit(t, db, store.Put(db.Tables.Saves, s.ID, s, store.IfAbsent))
		}
		commit(t, db,
			store.Put(db.Tables.SaveChunks, "later.out.0", &record.SaveChunk{Made: db.Now()}, store.IfAbsent))

		prune := func() {
			t.Helper()
			if err := p.PruneChunks(t.Context(), term, db.Now()); err != nil {
				t.Fatal(err)
			}
		}
		prune()
		i := 0
		for _, s := range db.Tables.Saves.All() {
			script := p.WithOutput(s, MaxOutput).Script
			removed := len(script.Stdout) == 0
			if removed != (i < 3) || removed != (len(script.Errors) == 1) {
				t.Errorf("request %d: %d bytes of output, errors %q", i, len(script.Stdout), script.Errors)
			}
			i++
		}
		if _, _, ok := db.Tables.SaveChunks.Get("later.out.0"); !ok {
			t.Error("a chunk was removed whose request may still be written")
		}
		time.Sleep(chunkAge)
		prune()
		if _, _, ok := db.Tables.SaveChunks.Get("later.out.0"); ok {
			t.Error("a chunk without a request is left")
		}
	})
}

// TestSaveScriptIsPruned: the script of a save is removed once the save has ended.
func TestSaveScriptIsPruned(t *testing.T) {
	db := recordtest.Open(t)
	p, term := New(db, 0), recordtest.Term(db)
	if err := p.StoreSaveScript(t.Context(), "s", []byte("true")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		status farm.SaveStatus
		chunks int
	}{{farm.SavePending, 1}, {farm.SaveError, 0}} {
		commit(t, db, store.Put(db.Tables.Saves, "s", &farm.SaveRequest{ID: "s", Status: step.status}, store.Any))
		if err := p.PruneChunks(t.Context(), term, db.Now()); err != nil {
			t.Fatal(err)
		}
		if n := db.Tables.SaveChunks.Len(); n != step.chunks {
			t.Errorf("%s: %d chunks, want %d", step.status, n, step.chunks)
		}
	}
}

func commit(t *testing.T, db record.DB, changes ...store.Change) {
	t.Helper()
	if err := db.Store.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	if err := db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
}
