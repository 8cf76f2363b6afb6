// Package fulltest lets tests reserve slow cases for make test-full, which make test need not run
// every time.
//
// It is test code that is imported by tests only, and does not run tests itself.
//
// Invariant: with BUILDYARD_TEST_ALL set, every test and every case runs.
package fulltest

import (
	"math/rand/v2"
	"os"
	"testing"
)

// allOf is the environment variable that makes tests run all their cases.
const allOf = "BUILDYARD_TEST_ALL"

// All reports whether tests run all their cases, as with make test-full.
func All() bool { return os.Getenv(allOf) != "" }

// Only skips a test except in make test-full: other tests check the same at another layer.
func Only(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("left to make test-full (%s=1)", allOf)
	}
}

// Some returns n of a test's cases, chosen randomly and in their order, so that many runs cover all
// of them. With All it returns every case.
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
