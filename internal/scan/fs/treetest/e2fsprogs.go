package treetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ExtProgram returns the path of a program of e2fsprogs, or skips the test.
func ExtProgram(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if p := filepath.Join(dir, name); exec.CommandContext(t.Context(), p, "-V").Run() == nil {
			return p
		}
	}
	t.Skip(name + " of e2fsprogs is not here")
	return ""
}
