package treetest

import "testing"

// BtrfsProgram returns the path of a program of btrfs-progs, or skips the test.
func BtrfsProgram(t testing.TB, name string) string {
	t.Helper()
	return program(t, name, "btrfs-progs")
}
