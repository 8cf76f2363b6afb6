package main

import (
	"slices"
	"strings"
)

// subject is a package of a system, as its package manager lists it, and what changelogs state about it.
type subject struct {
	name, version, arch   string
	source, sourceVersion string

	fixed    set // its own changelog names them
	affected set // only newer entries of the newest package's changelog name them
}

// named returns the source and its version that changelogs are about. The packages of a signed kernel are built from
// another source, which has only the signatures: linux-signed-amd64 6.1.76+1 has those of linux 6.1.76-1.
func (p *subject) named() (source, version string) {
	if strings.HasPrefix(p.source, "linux-signed-") {
		return "linux", strings.Replace(p.sourceVersion, "+", "-", 1)
	}
	return p.source, p.sourceVersion
}

// key identifies the package within its system.
func (p *subject) key() string { return p.name + "@" + p.version }

// truth is what changelogs state about a version of a source.
type truth struct {
	fixed, affected set
	repeated        int // named by a newer and by an older entry, of which the older one counts
}

// truthOf compares the changelog of a package with that of the newest package of the same source. It reports false
// where the newest changelog has no entry of the version: then the two have different histories.
func truthOf(own, newest history, version string) (truth, bool) {
	i := newest.index(version)
	if i < 0 {
		return truth{}, false
	}
	if own == nil {
		own = newest[i:]
	}
	t := truth{fixed: own.names(), affected: set{}}
	older := newest[i:].names()
	for name := range newest[:i].names() {
		if t.fixed[name] || older[name] {
			t.repeated++
			continue
		}
		t.affected.add(name)
	}
	return t, true
}

// fixes has the version that fixed each vulnerability of a source.
type fixes map[string]string

// fixesOf returns the lowest version with the oldest entry that names each vulnerability, in the newest changelog or
// one of others. An entry that the newest one lacks is older than all of it.
func fixesOf(newest history, others ...history) fixes {
	out := fixes{}
	place := map[string]int{}
	for _, h := range slices.Insert(slices.Clone(others), 0, newest) {
		for _, e := range h {
			i := newest.index(e.version)
			if i < 0 {
				i = len(newest)
			}
			for _, name := range e.names {
				if old, known := place[name]; !known || i >= old {
					place[name], out[name] = i, e.since
				}
			}
		}
	}
	return out
}
