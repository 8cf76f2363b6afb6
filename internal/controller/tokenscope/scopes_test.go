package tokenscope

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestScopes: a token for a purpose is granted when the records have an order for it, and to no
// other node.
func TestScopes(t *testing.T) {
	db := recordtest.Open(t)
	scopes, tables := New(db), db.Tables
	me, other := &farm.Node{ID: uuid.NewString(), Name: "mac-1", Host: "10.1.1.1"},
		&farm.Node{ID: uuid.NewString(), Name: "mac-2"}
	save := uuid.NewString()
	instance := func(state farm.InstanceState, template string) *farm.Instance {
		i := &farm.Instance{ID: uuid.NewString(), State: state, NodeID: me.ID, Template: farm.TemplateRef{ID: template}}
		if state == farm.Pushing {
			i.Task = &farm.NodeTask{ID: save, Kind: farm.TaskSave}
		}
		return i
	}
	starts, saved, failed, ending := instance(farm.Scheduling, "starts"), instance(farm.Pushing, "base"),
		instance(farm.Errored, "failed"), instance(farm.Terminating, "ending")
	past := &farm.InstanceHistory{ID: uuid.NewString(), NodeID: me.ID}
	request := &farm.SaveRequest{
		ID: save, Status: farm.SavePending,
		Request: farm.SaveOptions{InstanceID: saved.ID, TemplateID: "target", Tag: "v2", RevertBeforePush: true},
	}
	spread := func(id string, kind farm.CacheJobKind) *farm.CacheJob {
		return &farm.CacheJob{ID: id, Kind: kind, Template: farm.TemplateRef{ID: id}, Nodes: []string{me.ID}}
	}
	var changes []store.Change
	for _, i := range []*farm.Instance{starts, saved, failed, ending} {
		changes = append(changes, store.Put(tables.Instances, i.ID, i, store.IfAbsent))
	}
	for _, e := range []*farm.CacheJob{spread("spread", farm.CacheJobDistribute), spread("done",
		farm.CacheJobDistribute), spread("removed", farm.CacheJobRemove)} {
		changes = append(changes, store.Put(tables.CacheJobs, e.ID, e, store.IfAbsent))
	}
	recordtest.Commit(t, db, append(changes,
		store.Put(tables.History, record.HistoryKey(past), past, store.Any),
		store.Put(tables.Saves, save, request, store.IfAbsent),
		store.Put(tables.CacheJobResults, record.CacheJobResultID("done", me.ID), &farm.CacheJobResult{Done: true},
			store.IfAbsent))...)

	for _, p := range []api.TokenPurpose{
		{Pull: "starts"}, {Pull: "base"}, {Pull: "spread"}, {Save: save}, {Logs: failed.ID}, {Logs: past.ID},
	} {
		if _, err := scopes.Of(t.Context(), me, &p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		if _, err := scopes.Of(t.Context(), other, &p); farm.CodeOf(err) != farm.CodeForbidden {
			t.Errorf("%+v of another node: %v", p, err)
		}
	}
	for _, p := range []api.TokenPurpose{
		{Pull: "failed"},
		{Pull: "ending"},
		{Pull: "done"},
		{Pull: "removed"},
		{Pull: "target"},
		{Save: starts.ID},
		{Logs: save},
	} {
		if _, err := scopes.Of(t.Context(), me, &p); farm.CodeOf(err) != farm.CodeForbidden {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []api.TokenPurpose{{}, {Pull: "starts", Rows: true}, {Pull: "starts", Logs: failed.ID}} {
		if _, err := scopes.Of(t.Context(), me, &p); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
	scope, err := scopes.Of(t.Context(), me, &api.TokenPurpose{Save: save})
	if err != nil || len(scope.Saves) != 1 || len(scope.PullTemplates)+len(scope.LogInstances) > 0 ||
		scope.LogRows != nil || scope.Orders {
		t.Fatalf("%+v, %v", scope, err)
	}
	if s := scope.Saves[0]; s.ID != save || s.TemplateID != "target" || s.Tag != "v2" || s.BaseTemplateID != "base" ||
		s.RevertTag == nil || *s.RevertTag != "" {
		t.Errorf("%+v", s)
	}
	if scope, err = scopes.Of(t.Context(), other, &api.TokenPurpose{Rows: true}); err != nil ||
		*scope.LogRows != (auth.LogRowScope{Machine: "mac-2"}) {
		t.Errorf("%+v, %v", scope, err)
	}
	all, err := scopes.Of(t.Context(), me, nil)
	slices.Sort(all.PullTemplates)
	if err != nil || !all.Orders || !slices.Equal(all.PullTemplates, []string{"base", "spread", "starts"}) ||
		len(all.Saves) != 1 || len(all.LogInstances) != 4 || all.LogRows.Machine != "mac-1" {
		t.Errorf("all orders: %+v, %v", all, err)
	}
	if all, err = scopes.Of(t.Context(), other, nil); err != nil ||
		len(all.PullTemplates)+len(all.Saves)+len(all.LogInstances) > 0 {
		t.Errorf("of another node: %+v, %v", all, err)
	}
	request.Status = farm.SaveSucceeded
	done := *request
	recordtest.Commit(t, db, store.Put(tables.Saves, save, &done, store.Any))
	if _, err := scopes.Of(t.Context(), me, &api.TokenPurpose{Save: save}); farm.CodeOf(err) != farm.CodeForbidden {
		t.Errorf("a save that is over: %v", err)
	}
}
