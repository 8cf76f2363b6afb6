package lockfile

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// pnpmLock has the graph of a lock file of pnpm since version 9, which no longer marks packages for development. Keys
// of snapshots are names and versions, "ws@8.2.0(peer@1.0.0)".
type pnpmLock struct {
	Importers map[string]struct {
		Dependencies map[string]struct {
			Version string `yaml:"version"`
		} `yaml:"dependencies"`
		Optional map[string]struct {
			Version string `yaml:"version"`
		} `yaml:"optionalDependencies"`
	} `yaml:"importers"`
	Snapshots map[string]struct {
		Dependencies map[string]string `yaml:"dependencies"`
		Optional     map[string]string `yaml:"optionalDependencies"`
	} `yaml:"snapshots"`
}

// usedByPNPM returns the packages, NAME@VERSION, that a lock file of pnpm needs at run time; nil where it has no graph,
// or is invalid, which its reader reports.
func usedByPNPM(data []byte) map[string]bool {
	var lock pnpmLock
	if err := yaml.Unmarshal(data, &lock); err != nil || len(lock.Snapshots) == 0 || len(lock.Importers) == 0 {
		return nil
	}
	used := map[string]bool{}
	seen := map[string]bool{}
	var queue []string
	add := func(name, version string) {
		key := name + "@" + version
		if _, ok := lock.Snapshots[key]; !ok { // an alias has the name of the package in its version
			key = version
		}
		if !seen[key] {
			seen[key] = true
			queue = append(queue, key)
		}
	}
	for _, i := range lock.Importers {
		for name, d := range i.Dependencies {
			add(name, d.Version)
		}
		for name, d := range i.Optional {
			add(name, d.Version)
		}
	}
	for len(queue) > 0 {
		key := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		plain, _, _ := strings.Cut(key, "(")
		used[plain] = true
		for name, version := range lock.Snapshots[key].Dependencies {
			add(name, version)
		}
		for name, version := range lock.Snapshots[key].Optional {
			add(name, version)
		}
	}
	return used
}
