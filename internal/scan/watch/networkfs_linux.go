package watch

import "strings"

// IsNetworkFS returns the file systems served by a program of this machine or by another machine,
// which may not answer. It does not access them. Why is set for those that are left out by type.
func IsNetworkFS() ([]Mount, error) {
	t, err := readMounts()
	if err != nil {
		return nil, err
	}
	var out []Mount
	for _, m := range t.visible() {
		if strings.HasPrefix(m.kind, "fuse") && m.kind != "fusectl" || elsewhere[m.kind] == onOther {
			out = append(out, Mount{Path: m.point, Type: m.kind, Why: elsewhere[m.kind]})
		}
	}
	return out, nil
}
