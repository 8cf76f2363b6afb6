package registryrest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestIDOfADeletedTemplateIsReserved: only callers that may delete templates may reuse it; a restart
// changes nothing.
func TestIDOfADeletedTemplateIsReserved(t *testing.T) {
	v := newVault(t)
	v.grant([]farm.Permission{"delete_vm"}, "list", "push_tag")
	a, begun := v.offer("dev", first, "two", "")
	if a.Status != "OK" {
		t.Fatal(a.raw)
	}
	if a := v.call("root", "DELETE /registry/vm?id="+first, ""); a.Status != "OK" {
		t.Fatal(a.raw)
	}
	refused := func(when string, a answer) {
		t.Helper()
		if a.code != 403 || !strings.Contains(a.Message, "delete_vm") || !strings.Contains(a.Message, first) {
			t.Errorf("%s: %d %s", when, a.code, a.raw)
		}
	}
	refused("a push that had begun", v.call("dev", "POST "+begun+"/commit", `{"roots":{}}`))
	a, _ = v.offer("dev", first, "v1", "")
	refused("a push", a)
	a, _ = v.offer("dev", strings.ToUpper(first), "v1", "")
	refused("by the id in capitals", a)
	a, _ = v.ordered("saving node", nil)
	if a.Status == "OK" {
		t.Errorf("a node: %s", a.raw)
	}
	v.push("dev", none, "v1") // another id is free

	v.server.Close()
	if err := v.reg.Close(); err != nil {
		t.Fatal(err)
	}
	v = openVault(t, v.base)
	v.grant([]farm.Permission{"delete_vm"}, "list", "push_tag")
	a, _ = v.offer("dev", first, "v1", "")
	refused("after a restart", a)
	v.grant(nil)
	v.push("dev", first, "v1") // a caller that may delete templates may push it again
	v.grant([]farm.Permission{"delete_vm"}, "list", "push_tag")
	if a, _ := v.offer("dev", first, "v2", ""); a.Status != "OK" {
		t.Errorf("a tag of what is there again: %s", a.raw)
	}
}

// TestGrantsEndBeforeAnIdIsUsedAgain: right after the deletion, or when the id is used again at the latest.
func TestGrantsEndBeforeAnIdIsUsedAgain(t *testing.T) {
	v := newVault(t)
	var ended []string
	away := errors.New("the store is away")
	fail := away
	v.reg.SetGrantRemover(func(_ context.Context, ids []string) error {
		if fail == nil {
			ended = append(ended, ids...)
		}
		return fail
	})
	if a := v.call("root", "DELETE /registry/vm?id="+first, ""); a.Status != "OK" {
		t.Fatal(a.raw)
	}
	a, base := v.offer("root", first, "v1", "")
	if a.Status == "OK" {
		a = v.finish("root", base, first+"v1")
	}
	if a.code != 503 {
		t.Errorf("while they cannot be ended: %d %s", a.code, a.raw)
	}
	if err := v.reg.RemoveDeletedGrants(t.Context()); !errors.Is(err, away) {
		t.Error(err)
	}
	fail = nil
	if err := v.reg.RemoveDeletedGrants(t.Context()); err != nil || !slices.Equal(ended, []string{first}) {
		t.Errorf("ended %v, %v", ended, err)
	}
	v.push("root", first, "v1")
	if ended = nil; v.reg.RemoveDeletedGrants(t.Context()) != nil || ended != nil {
		t.Errorf("of a template that is there: %v", ended)
	}
	if a := v.call("root", "DELETE /registry/vm?id="+second, ""); a.Status != "OK" ||
		!slices.Equal(ended, []string{second}) {
		t.Errorf("after a deletion: %v %s", ended, a.raw)
	}
}
