package main

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// TestDisks: the disks are as the rows state, and the same in every run.
func TestDisks(t *testing.T) {
	base := disk{blocks: baseBlocks()}
	base.count()
	if share := float64(base.data) / size; share < 0.5 || share > 0.56 {
		t.Errorf("%.0f %% of the base are data", share*100)
	}
	for name, median := range map[string]float64{"scattered": block, "clustered": cluster} {
		next := base.next(name, median)
		want := int64(float64(base.data/block)*changes)*block + newBytes/block*block
		if next.changed != want || next.data != base.data+newBytes/block*block {
			t.Errorf("%s: %d bytes changed, %d are data", name, next.changed, next.data)
		}
		if !slices.Equal(next.blocks, base.next(name, median).blocks) {
			t.Errorf("%s: made twice, it differs", name)
		}
	}
	text := newText()
	var chance int
	for at := range 4096 {
		one := base.appendBlock(nil, at*7, text)
		if len(one) != block || !bytes.Equal(one, base.appendBlock(nil, at*7, text)) {
			t.Fatal("a block differs from itself")
		}
		if bytes.ContainsFunc(one, func(r rune) bool { return r == 0xfffd }) {
			chance++
		}
	}
	if chance < 1600 || chance > 2500 {
		t.Errorf("%d of 4096 blocks are chance", chance)
	}
}

// TestContenderOrder: each contender comes first in turn, results stay in order, and missing contenders are
// skipped.
func TestContenderOrder(t *testing.T) {
	for n := range 4 {
		var order []int
		rival := func(i int) contender {
			return func() (float64, error) { order = append(order, i); return float64(i), nil }
		}
		seconds, err := turns(n, rival(0), nil, rival(2), rival(3))
		if err != nil || !slices.Equal(seconds, []float64{0, 0, 2, 3}) {
			t.Errorf("%v, %v", seconds, err)
		}
		if want := [][]int{{0, 2, 3}, {2, 3, 0}, {2, 3, 0}, {3, 0, 2}}[n]; !slices.Equal(order, want) {
			t.Errorf("round %d: %v", n, order)
		}
	}
	bad := errors.New("bad")
	if _, err := turns(0, func() (float64, error) { return 1, bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
}

// TestRows: every row of the rounds is in the table once.
func TestRows(t *testing.T) {
	seen := map[string]int{}
	for _, r := range rows(9) {
		seen[r.Name]++
	}
	for _, name := range append(slices.Clone(inRounds), rowClientMemory, rowRegistryMemory, rowList) {
		if seen[name] != 1 {
			t.Errorf("%s is there %d times", name, seen[name])
		}
	}
	if len(seen) != len(inRounds)+3 {
		t.Errorf("%d rows", len(seen))
	}
}
