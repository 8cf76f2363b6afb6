package treetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program returns the path of a program of a package, or skips the test.
func program(t testing.TB, name, of string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if p := filepath.Join(dir, name); exec.CommandContext(t.Context(), p, "-V").Run() == nil {
			return p
		}
	}
	t.Skip(name + " of " + of + " is not here")
	return ""
}
