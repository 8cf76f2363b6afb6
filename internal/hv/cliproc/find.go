package cliproc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programDirs are searched after PATH: a LaunchAgent has a short one.
var programDirs = []string{"/opt/homebrew/bin", "/usr/local/bin"}

// FindProgram returns the path of an executable in PATH or where programs for Macs are installed.
func FindProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range programDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: it is neither in PATH nor in %s", name, strings.Join(programDirs, ", "))
}

// SearchPath returns the value of PATH for such programs.
func SearchPath() string {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), programDirs...)
	return strings.Join(slices.Compact(dirs), string(filepath.ListSeparator))
}
