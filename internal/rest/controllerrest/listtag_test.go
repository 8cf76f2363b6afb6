package controllerrest

import (
	"hash/maphash"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestListTag has lists that differ in a message that no record has: their tags differ, too.
func TestListTag(t *testing.T) {
	s := &server{hashSeed: maphash.MakeSeed()}
	tagOf := func(list []instances.View, partial bool) string {
		tag := s.newListTag(partial)
		for _, l := range list {
			tag.add(l)
		}
		return tag.tagText()
	}
	list := func(messages ...string) (list []instances.View) {
		for i, m := range messages {
			list = append(list,
				instances.View{Instance: &farm.Instance{ID: string(rune('a' + i))}, Message: m})
		}
		return list
	}
	seen := map[string]int{}
	for i, l := range [][]instances.View{
		{},
		list(""), list("", ""), list("x"), list("x", ""), list("", "x"), list("x", "x"), list("x", "y"), list("y", "x"),
		list("xy", ""), list("", "", "x"),
		list("x", "", "x"), list("x", "x", ""), list("x", "x", "x"), list("x\x000", "x"),
	} {
		tag := tagOf(l, false)
		if other, known := seen[tag]; known && i > 2 { // without messages the records determine the tag
			t.Errorf("lists %d and %d have one tag", i, other)
		}
		if tag != tagOf(l, false) {
			t.Errorf("list %d has two tags", i)
		}
		seen[tag] = i
	}
	some := list("", "", "")
	if tagOf(some[:2], true) == tagOf(some[1:], true) {
		t.Error("what a filter lets through has no part in the tag")
	}
}
