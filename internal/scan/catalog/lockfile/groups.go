package lockfile

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// isDevelopmentGroup reports whether a group of dependencies, or an extra, is for development by its name.
func isDevelopmentGroup(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "dev", "develop", "development", "lint", "docs":
		return true
	}
	return strings.HasPrefix(name, "test")
}

// nameAndVersion identifies a package of a lock file, in the spelling that lock files of Python have.
func nameAndVersion(name, version string) string { return catalog.PythonName(name) + "@" + version }

// developmentOfPDM returns the packages of a pdm.lock all of whose groups are for development. Its reader drops the
// group "default".
func developmentOfPDM(data []byte) map[string]bool {
	var lock struct {
		Packages []struct {
			Name    string   `toml:"name"`
			Version string   `toml:"version"`
			Groups  []string `toml:"groups"`
		} `toml:"package"`
	}
	out := map[string]bool{}
	if err := toml.Unmarshal(data, &lock); err != nil {
		return out // its reader reports it
	}
	used := map[string]bool{} // a package may have one entry for each of its extras
	for _, p := range lock.Packages {
		key := nameAndVersion(p.Name, p.Version)
		isOther := func(group string) bool { return !isDevelopmentGroup(group) }
		if len(p.Groups) == 0 || slices.ContainsFunc(p.Groups, isOther) {
			used[key] = true
		}
		out[key] = true
	}
	maps.DeleteFunc(out, func(key string, _ bool) bool { return used[key] })
	return out
}

// developmentOfPoetry returns the packages of a poetry.lock of Poetry before 1.5 whose category is "dev". Its reader
// knows the groups of later versions alone.
func developmentOfPoetry(data []byte) map[string]bool {
	var lock struct {
		Packages []struct {
			Name     string `toml:"name"`
			Version  string `toml:"version"`
			Category string `toml:"category"`
		} `toml:"package"`
	}
	out := map[string]bool{}
	if err := toml.Unmarshal(data, &lock); err != nil {
		return out // its reader reports it
	}
	for _, p := range lock.Packages {
		if p.Category == "dev" { // one that another package needs, too, is "main"
			out[nameAndVersion(p.Name, p.Version)] = true
		}
	}
	return out
}

// uvDependency is an edge of the graph in a uv.lock.
type uvDependency struct {
	Name    string   `toml:"name"`
	Version string   `toml:"version"` // where the file has several versions
	Extra   []string `toml:"extra"`
}

// uvLock has the graph of a uv.lock. The project, and the other members of its workspace, are packages of it.
type uvLock struct {
	Manifest struct {
		Groups map[string][]uvDependency `toml:"dependency-groups"` // where the root is not a package
	} `toml:"manifest"`
	Packages []struct {
		Name    string `toml:"name"`
		Version string `toml:"version"`
		Source  struct {
			Virtual  string `toml:"virtual"`
			Editable string `toml:"editable"`
		} `toml:"source"`
		Dependencies []uvDependency            `toml:"dependencies"`
		Extras       map[string][]uvDependency `toml:"optional-dependencies"`
		Groups       map[string][]uvDependency `toml:"dev-dependencies"`
	} `toml:"package"`
}

// uvNode is a version of a package, or one of its extras. Without a version it stands for all of them.
type uvNode struct{ name, version, extra string }

// uvGraph is what each node needs.
type uvGraph struct {
	needs    map[uvNode][]uvDependency
	versions map[uvNode][]string // of nodes without a version
}

// developmentOfUV returns the packages of a uv.lock that groups for development need and nothing else does. Its reader
// takes the extras of the last package for the groups of all.
func developmentOfUV(data []byte) map[string]bool {
	var lock uvLock
	if err := toml.Unmarshal(data, &lock); err != nil {
		return map[string]bool{} // its reader reports it
	}
	g := uvGraph{needs: map[uvNode][]uvDependency{}, versions: map[uvNode][]string{}}
	var run, development []uvDependency
	addGroups := func(groups map[string][]uvDependency) {
		for name, list := range groups {
			if isDevelopmentGroup(name) {
				development = append(development, list...)
			} else {
				run = append(run, list...)
			}
		}
	}
	addGroups(lock.Manifest.Groups)
	for _, p := range lock.Packages {
		g.add(uvNode{name: p.Name, version: p.Version}, p.Dependencies)
		for extra, list := range p.Extras {
			g.add(uvNode{p.Name, p.Version, extra}, list)
		}
		if cmp.Or(p.Source.Virtual, p.Source.Editable) != "" {
			run = append(run, p.Dependencies...)
			addGroups(p.Extras)
			addGroups(p.Groups)
		}
	}
	used, out := g.closure(run), g.closure(development)
	maps.DeleteFunc(out, func(key string, _ bool) bool { return used[key] })
	return out
}

func (g *uvGraph) add(n uvNode, needs []uvDependency) {
	g.needs[n] = append(g.needs[n], needs...)
	all := uvNode{name: n.name, extra: n.extra}
	g.versions[all] = append(g.versions[all], n.version)
}

// closure returns the packages that dependencies need, directly or through others.
func (g *uvGraph) closure(list []uvDependency) map[string]bool {
	out := map[string]bool{}
	seen := map[uvNode]bool{}
	var queue []uvNode
	add := func(n uvNode) {
		if !seen[n] {
			seen[n] = true
			queue = append(queue, n)
		}
	}
	addAll := func(list []uvDependency) {
		for _, d := range list {
			add(uvNode{name: d.Name, version: d.Version})
			for _, extra := range d.Extra {
				add(uvNode{d.Name, d.Version, extra})
			}
		}
	}
	addAll(list)
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if n.version == "" {
			for _, version := range g.versions[n] {
				add(uvNode{n.name, version, n.extra})
			}
		}
		if needs, ok := g.needs[n]; ok {
			out[nameAndVersion(n.name, n.version)] = true
			addAll(needs)
		}
	}
	return out
}
