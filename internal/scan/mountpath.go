package scan

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// The roles of volumes that decide: those of a Mac that make one tree.
const (
	roleSystem = "system"
	roleData   = "data"
)

// assignMountPaths assigns every volume a path: the main one, and the volume that makes one tree with it, are
// "/", the others are below "/Volumes", as a Mac shows them.
func assignMountPaths(volumes []volume) {
	if len(volumes) == 0 {
		return
	}
	root := slices.MaxFunc(volumes, func(a, b volume) int { return cmp.Compare(a.bootRank, b.bootRank) })
	at := slices.IndexFunc(volumes, func(v volume) bool { return v.bootRank == root.bootRank })
	taken := map[string]bool{}
	for i := range volumes {
		v := &volumes[i]
		if i == at || v.sameTree(volumes[at]) {
			v.MountPath = "/"
			continue
		}
		base := strings.ReplaceAll(cmp.Or(v.Name, "volume"), "/", ":")
		name := base
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s %d", base, n)
		}
		taken[name] = true
		v.MountPath = "/Volumes/" + name
	}
}

// sameTree reports whether two volumes of a Mac are one tree to its users.
func (v *volume) sameTree(w volume) bool {
	return v.group != "" && v.group == w.group && v.Role != w.Role &&
		(v.Role == roleSystem || v.Role == roleData) && (w.Role == roleSystem || w.Role == roleData)
}

// bootRank returns how likely a volume with a role and files is the boot volume of a machine.
func bootRank(role string, files fs.FS) int {
	switch role {
	case roleSystem:
		return 4
	case roleData:
		return 3
	}
	for rank, names := range [][]string{{"usr", "opt", "Users"}, {"etc", "Applications"}} {
		if slices.ContainsFunc(names, func(n string) bool { _, err := fs.Stat(files, n); return err == nil }) {
			return rank + 1
		}
	}
	return 0
}

// underMount converts paths to those below the mount point of their volume.
func underMount(mount string, res *catalog.Result) []catalog.Package {
	if mount == "/" {
		return res.Packages
	}
	paths := map[string]string{} // many packages share one, and should share its memory
	for _, p := range res.Packages {
		for i, l := range p.Locations {
			if paths[l] == "" {
				paths[l] = mount + l
			}
			p.Locations[i] = paths[l]
		}
	}
	for i := range res.Warnings {
		res.Warnings[i].Path = mount + res.Warnings[i].Path
	}
	return res.Packages
}
