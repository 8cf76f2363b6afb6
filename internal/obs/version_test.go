package obs

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
)

func TestFullVersion(t *testing.T) {
	const hash = "7f6a114d8c0b2a9e4f3d5c6b7a8990a1b2c3d4e5"
	defer func(version, commit string) { Version, Commit = version, commit }(Version, Commit)
	for _, tt := range []struct{ version, commit, want string }{
		{"1.2.3", hash, "1.2.3-7f6a114d8c0b"},
		{"1.2.3-dev", hash, "1.2.3-dev+7f6a114d8c0b"},
		{"1.2.3-dev", hash + ".dirty", "1.2.3-dev+7f6a114d8c0b.dirty"},
		{"1.2.3-dev", "", "1.2.3-dev"},
		{"1.2.3", "abc", "1.2.3-abc"},
	} {
		Version, Commit = tt.version, tt.commit
		got := FullVersion()
		if got != tt.want || !semver.IsValid("v"+got) {
			t.Errorf("version %q of commit %q is %q, want %q", tt.version, tt.commit, got, tt.want)
		}
		if b := ThisBuild(); b.Version != got || b.Commit != tt.commit || b.Go == "" || b.Platform == "" {
			t.Errorf("%+v", b)
		}
	}
}

// TestNextRelease: the version of a build between releases is that of the SDK in go.mod, which is the next release.
func TestNextRelease(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	next := strings.TrimSuffix(Version, "-dev")
	if line := "/client v" + next + "\n"; next == Version || !bytes.Contains(mod, []byte(line)) {
		t.Errorf("the version is %q, and go.mod does not contain %q", Version, line)
	}
}
