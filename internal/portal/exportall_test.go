package portal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestExportOfChangingList: while rows end and others come between two reads, each row that stays is sent once, and no
// row twice.
func TestExportOfChangingList(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var list []string
		stays, next := map[string]bool{}, 0
		add := func(n int, stay bool) {
			for range n {
				id := fmt.Sprintf("%06d", next)
				next++
				list = append(list, id)
				stays[id] = stay
			}
		}
		for range 1 + random.IntN(40) {
			add(random.IntN(200), random.IntN(2) == 0)
		}
		sent := map[string]int{}
		err := exportAll(newStubVisit(t, nil), "", func(row ...any) error {
			sent[row[0].(string)]++
			return nil
		}, func(o client.PageOptions) (exportPart, error) {
			rows := list[min(o.Skip, len(list)):min(o.Skip+o.Limit, len(list))]
			part := exportPart{ids: slices.Clone(rows), total: len(list)}
			part.row = func(i int) []any { return []any{part.ids[i]} }
			ends := random.Float64()
			list = slices.DeleteFunc(slices.Clone(list), func(id string) bool {
				return !stays[id] && random.Float64() < ends
			})
			if next < 20_000 {
				add(random.IntN(100), false)
			}
			return part, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for id, stay := range stays {
			if n := sent[id]; n > 1 || stay && n == 0 {
				t.Fatalf("seed %d: row %s was sent %d times; it stays: %t", seed, id, n, stay)
			}
		}
	}
}
