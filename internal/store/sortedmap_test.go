package store

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func collect(o sortedMap[int], start string) (keys []string, vals []int) {
	for k, v := range o.rangeFrom(start) {
		keys = append(keys, k)
		vals = append(vals, v)
	}
	return keys, vals
}

func TestOrderedAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			o    sortedMap[int]
			want = map[string]int{}
		)
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			before, beforeWant := o, slices.Sorted(maps.Keys(want))
			e := o.beginEdit()
			for i := range rapid.IntRange(0, 300).Draw(t, "ops") {
				key := fmt.Sprintf("%03d", rapid.IntRange(0, 600).Draw(t, "key"))
				if rapid.IntRange(0, 9).Draw(t, "op") < 4 {
					e.delete(key)
					delete(want, key)
					continue
				}
				e.put(key, i)
				want[key] = i
			}
			o = e.finish()
			if keys, _ := collect(before, ""); !slices.Equal(keys, beforeWant) {
				t.Fatalf("an edit changed an older snapshot")
			}
		}
		keys, vals := collect(o, "")
		wantKeys := slices.Sorted(maps.Keys(want))
		if !slices.Equal(keys, wantKeys) || o.count != len(want) {
			t.Fatalf("keys %v, n %d; want %v", keys, o.count, wantKeys)
		}
		for i, k := range keys {
			if got, ok := o.get(k); !ok || got != want[k] || vals[i] != want[k] {
				t.Fatalf("%s = %d, %v; want %d", k, got, ok, want[k])
			}
		}
		start := fmt.Sprintf("%03d", rapid.IntRange(0, 600).Draw(t, "start"))
		at, _ := slices.BinarySearch(wantKeys, start)
		if rest, _ := collect(o, start); !slices.Equal(rest, wantKeys[at:]) {
			t.Fatalf("from %s: %s", start, cmp.Diff(wantKeys[at:], rest))
		}
		if _, ok := o.get("absent"); ok {
			t.Fatal("found a key that was never put")
		}
	})
}

func TestOrderedStaysDense(t *testing.T) {
	e := sortedMap[int]{}.beginEdit()
	for i := range 10_000 {
		e.put(fmt.Sprintf("%06d", i), i)
	}
	if got, want := len(e.chunks), 10_000/maxChunkKeys+1; got > want {
		t.Errorf("rising keys fill %d chunks, want at most %d", got, want)
	}
	for i := range 10_000 {
		if i%100 != 0 {
			e.delete(fmt.Sprintf("%06d", i))
		}
	}
	if len(e.chunks) > 10 {
		t.Errorf("100 keys left in %d chunks", len(e.chunks))
	}
}

// TestWhereKeepsValuesApart: a value is a client's text; one with a NUL in it must not be mistaken
// for a shorter one.
func TestWhereKeepsValuesApart(t *testing.T) {
	table := NewTable("k", WithIndex("value", func(v *string) []string { return []string{*v} }))
	short, long := "a", "a\x00b"
	table.stageRecord("x", &short, 1)
	table.stageRecord("y", &long, 1)
	table.stageRecord("x", &short, 2)
	table.publishStaged()
	for value, want := range map[string]string{short: "x", long: "y"} {
		var got []string
		for id := range table.Where("value", value) {
			got = append(got, id)
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("filed under %q: %q, want %q", value, got, want)
		}
	}
}

// TestOldVersionsAreReleased checks that a map keeps nothing of the versions before it in memory,
// though it shares most of its chunks with them.
func TestOldVersionsAreReleased(t *testing.T) {
	const chunks = 4
	e := sortedMap[int]{}.beginEdit()
	for i := range chunks * maxChunkKeys {
		e.put(fmt.Sprintf("%06d", i), i)
	}
	o := e.finish()
	old := weak.Make(o.chunks[0])
	e = o.beginEdit()
	e.put("000000", -1)
	o = e.finish()
	runtime.GC()
	if old.Value() != nil {
		t.Error("a chunk that was replaced is still reachable")
	}
	if v, ok := o.get("000000"); !ok || v != -1 {
		t.Errorf("the new version gives %d, %t", v, ok)
	}
}
