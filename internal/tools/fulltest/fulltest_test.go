package fulltest

import (
	"slices"
	"testing"
)

func TestSome(t *testing.T) {
	t.Setenv(allOf, "")
	cases, seen := []int{0, 1, 2, 3, 4}, map[int]int{}
	for range 1000 {
		got := Some(quiet{t}, 2, cases)
		if len(got) != 2 || got[0] >= got[1] {
			t.Fatalf("picked %v", got)
		}
		seen[got[0]]++
		seen[got[1]]++
	}
	for _, c := range cases {
		if seen[c] < 200 {
			t.Errorf("case %d was picked %d times of 1000, want about 400", c, seen[c])
		}
	}
	if got := Some(t, 9, cases); !slices.Equal(got, cases) {
		t.Errorf("more than there are: %v", got)
	}
	t.Setenv(allOf, "1")
	if got := Some(t, 2, cases); !slices.Equal(got, cases) {
		t.Errorf("all: %v", got)
	}
}

// quiet suppresses a thousand lines of the log.
type quiet struct{ testing.TB }

func (quiet) Logf(string, ...any) {}
