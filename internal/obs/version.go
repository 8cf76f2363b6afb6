package obs

import (
	"runtime"
	"strings"
)

// The linker sets these from git: scripts/version.sh. What is here stands for a build without it.
var (
	// Version is X.Y.Z of a release, or X.Y.Z-dev of a build between releases, where X.Y.Z is the next release.
	Version = "0.1.0-dev"
	// Commit is the hash of the commit, with ".dirty" after it if the files differed from it.
	Commit = ""
	// Date is the time of the commit: RFC 3339, in UTC. It is not that of the build, which would differ each time.
	Date = ""
)

// commitDigits is the number of digits of a commit in a version.
const commitDigits = 12

// FullVersion returns the version of this program in the form X.Y.Z-<hash> that clients of the API expect. A build
// between releases has X.Y.Z-dev+<hash>, and X.Y.Z-dev+<hash>.dirty with files that no commit has. Both forms are
// semantic versions.
func FullVersion() string {
	hash, dirty, isDirty := strings.Cut(Commit, ".")
	hash = hash[:min(len(hash), commitDigits)]
	if isDirty {
		hash += "." + dirty
	}
	switch {
	case hash == "":
		return Version
	case strings.Contains(Version, "-"):
		return Version + "+" + hash
	}
	return Version + "-" + hash
}

// Build describes this program. Its JSON form is the output of "version -o json".
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "": not known
	Date     string `json:"date"`   // of the commit, RFC 3339; "": not known
	Go       string `json:"go"`
	Platform string `json:"platform"` // OS/ARCH
}

// ThisBuild returns the description of this program.
func ThisBuild() Build {
	return Build{FullVersion(), Commit, Date, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}
