package watch

import "strings"

// NetworkMounts returns the file systems served by a program of this machine or by another machine,
// which may not answer. It does not access them. Why is set for those that are left out by type.
func NetworkMounts() ([]Mount, error) {
	t, err := readMounts()
	if err != nil {
		return nil, err
	}
	var out []Mount
	for _, m := range t.visibleMounts() {
		if strings.HasPrefix(m.fsType, "fuse") && m.fsType != "fusectl" ||
			excludedFSTypes[m.fsType] == reasonNetworkFS {
			out = append(out, Mount{Path: m.mountPoint, Type: m.fsType, Reason: excludedFSTypes[m.fsType]})
		}
	}
	return out, nil
}
