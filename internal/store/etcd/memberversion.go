package etcd

import (
	"fmt"
	"strconv"
	"strings"
)

// The supported versions of external members.
const (
	oldestVersion = "3.5.3" // 3.5.0 to 3.5.2 can lose acknowledged writes, see etcd-io/etcd#13766
	newestVersion = "3.7"   // the newest that is tested
)

// checkVersion refuses a member whose version is too old, or not that of an etcd.
func checkVersion(member, version string) error {
	have, ok := parseVersion(version)
	if !ok {
		return fmt.Errorf("%s has the unknown etcd version %q: want %s to %s", member, version, oldestVersion,
			newestVersion)
	}
	oldest, _ := parseVersion(oldestVersion)
	if isLess(have, oldest) {
		return fmt.Errorf("etcd at %s has version %s: want %s to %s; upgrade etcd one minor version at a time", member,
			version, oldestVersion, newestVersion)
	}
	return nil
}

// isNewerVersion reports whether a minor version is newer than the tested ones.
func isNewerVersion(version string) bool {
	have, _ := parseVersion(version)
	newest, _ := parseVersion(newestVersion)
	return isLess(newest, [3]int{have[0], have[1], 0})
}

// parseVersion reads major, minor and patch; missing ones are 0.
func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(text, "-") // of a release candidate
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, true
}

func isLess(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
