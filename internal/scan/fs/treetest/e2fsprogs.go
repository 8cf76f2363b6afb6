package treetest

import "testing"

// ExtProgram returns the path of a program of e2fsprogs, or skips the test.
func ExtProgram(t testing.TB, name string) string {
	t.Helper()
	return program(t, name, "e2fsprogs")
}
