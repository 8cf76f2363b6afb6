package files

import (
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// Directories with a special meaning.
const (
	CentralLogsDir = "central-logs" // written only by the log server
	FailureLogsDir = "logs"         // of VMs that failed, by their IDs; removed by age and size
)

const (
	maxNameBytes    = 1024 // bytes
	maxElementBytes = 255  // bytes of a file's or directory's name
	maxDepth        = 16
)

// CheckName refuses invalid file names.
func CheckName(name string) error {
	parts := strings.Split(name, "/")
	if len(name) > maxNameBytes || len(parts) > maxDepth || !utf8.ValidString(name) {
		return farm.Invalid("name", "must be UTF-8 of at most %d bytes, with at most %d path elements", maxNameBytes,
			maxDepth)
	}
	for _, p := range parts {
		if p == "" || p[0] == '.' || len(p) > maxElementBytes || strings.ContainsFunc(p, isControl) {
			return farm.Invalid("name",
				"must have parts of 1 to %d bytes between slashes, which do not begin with a dot and have no control "+
					"characters", maxElementBytes)
		}
	}
	return nil
}

func isControl(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\\' }

// topDirOf returns the directory below the top that a name is in, or the name at the top.
func topDirOf(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

// statNoFollow returns the file or directory of a name whose parents are all directories; it does not follow links.
func statNoFollow(root *os.Root, name string) (os.FileInfo, error) {
	if name == "." {
		return root.Stat(name)
	}
	if CheckName(name) != nil {
		return nil, farm.NotFound()
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if info, err := root.Lstat(name[:i]); err != nil || !info.IsDir() {
			return nil, farm.NotFound()
		}
	}
	info, err := root.Lstat(path.Clean(name))
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return nil, farm.NotFound()
	}
	return info, nil
}
