package watch

import "strings"

// IsNetworkFS returns the file systems that others answer for, and may not: a program of this
// machine, or another machine. Nobody of them is asked. Those that are left out by type say
// why.
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
