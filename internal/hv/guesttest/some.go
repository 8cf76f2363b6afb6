package guesttest

import (
	"math/rand/v2"
	"os"
	"testing"
)

// allOf is the environment variable that makes tests try every case of theirs.
const allOf = "BUILDYARD_TEST_ALL"

// All says that tests are to try every case of theirs, whatever it takes. make
// test-full asks for it.
func All() bool { return os.Getenv(allOf) != "" }

// Full skips a test that make test leaves to make test-full, because others go the same
// way at another layer.
func Full(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("left to make test-full (%s=1)", allOf)
	}
}

// Some picks n of the cases of a test by chance, in their order, so that many runs
// try all of them: one run need not pay for every step at which a process can be
// killed. With All it answers every case.
func Some[T any](t testing.TB, n int, cases []T) []T {
	t.Helper()
	if All() || n >= len(cases) {
		return cases
	}
	var picked []T
	for i, c := range cases {
		if rand.IntN(len(cases)-i) < n-len(picked) {
			picked = append(picked, c)
		}
	}
	t.Logf("tries %d of %d cases: %v (%s=1 tries all)", n, len(cases), picked, allOf)
	return picked
}
