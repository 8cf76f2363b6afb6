package extsort

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSort has more records than memory, and some that are larger than all of it.
func TestSort(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 60_000} {
		dir := t.TempDir()
		s := New(dir, minMemory)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		var want [][2]string
		for i := range n {
			key, value := fmt.Sprintf("k%d", rng.IntN(n)), fmt.Sprintf("v%d", rng.IntN(5))
			if i == n/2 && n > 1000 {
				value = string(bytes.Repeat([]byte("x"), 3<<20))
			}
			want = append(want, [2]string{key, value})
			check(t, s.Add([]byte(key), []byte(value)))
		}
		slices.SortFunc(want, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		i := 0
		check(t, s.Each(func(k, v []byte) error {
			if string(k) != want[i][0] || string(v) != want[i][1] {
				return fmt.Errorf("record %d is %.40q %.40q, want %.40q", i, k, v, want[i])
			}
			i++
			return nil
		}))
		if i != n {
			t.Errorf("%d records of %d", i, n)
		}
		s.Remove()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%d temporary files are left, %v", len(left), err)
		}
	}
}

func TestErrors(t *testing.T) {
	s := New(t.TempDir()+"/missing", minMemory)
	var err error
	for i := 0; i < 100_000 && err == nil; i++ {
		err = s.Add([]byte("key"), bytes.Repeat([]byte("v"), 100))
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	s = New(t.TempDir(), minMemory)
	check(t, s.Add([]byte("a"), nil))
	stop := errors.New("stop")
	if err := s.Each(func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error: %v", err)
	}
}
