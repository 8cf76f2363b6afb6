package sched

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// Locality is how much of a version is on a node.
type Locality int

// The localities, worst first.
const (
	NothingCached Locality = iota
	OlderCached            // some other version of the template
	VersionPulled          // the same version is being pulled for another instance
	VersionCached          // the same version
)

// Score describes how well a node suits a request. Fields are compared in their order.
type Score struct {
	GroupDistance int      // steps from the request's own group; 0 is the group itself
	Failures      int      // starts that failed there lately; fewer is better
	Locality      Locality // more is better
	MissingBytes  int64    // bytes to pull in whole megabytes, 0 also when unknown; fewer is better
	Load          int      // how full the node is, in millionths; less is better, with Fit more
	BinPack       bool     // see Options
}

// weight packs the fields into one number in their order, the smaller the better. Each has as many
// bits as it needs: the bounds are maxFallback, maxCountedFailures, maxMissing and a full node, which
// accepts no more VMs.
func (s Score) weight() uint64 {
	load := uint64(min(max(s.Load, 0), fullLoad))
	if s.BinPack {
		load = fullLoad - load
	}
	w := uint64(min(s.GroupDistance, maxFallback))
	w = w<<3 | uint64(min(s.Failures, maxCountedFailures))
	w = w<<2 | uint64(VersionCached-s.Locality)
	w = w<<32 | uint64(min(s.MissingBytes, maxMissing)/megabyte)
	return w<<20 | load
}

const (
	maxFallback = 1<<7 - 1
	maxMissing  = 1<<32*megabyte - 1
	megabyte    = 1 << 20
	fullLoad    = 1_000_000
)

// Text returns the score for people, as in "has the version, 50 % full".
func (s Score) Text() string {
	var parts []string
	switch {
	case s.GroupDistance == 1:
		parts = append(parts, "in the fallback group")
	case s.GroupDistance > 1:
		parts = append(parts, fmt.Sprintf("%d fallback groups away", s.GroupDistance))
	}
	switch {
	case s.Failures == 1:
		parts = append(parts, "1 start failed lately")
	case s.Failures > 1:
		parts = append(parts, fmt.Sprintf("%d starts failed lately", s.Failures))
	}
	parts = append(parts, s.localityText())
	return strings.Join(append(parts, fmt.Sprintf("%d %% full", s.Load/10_000)), ", ")
}

// localityText describes what is on the node.
func (s Score) localityText() string {
	text := map[Locality]string{
		VersionCached: "has the version", VersionPulled: "pulls the version already",
		OlderCached: "has another version of the template", NothingCached: "has nothing of the template",
	}[s.Locality]
	if s.MissingBytes > 0 {
		text += fmt.Sprintf(" (%s missing)", bytesize.Format(s.MissingBytes))
	}
	return text
}

// minMissingDivisor is the fraction of a version that is assumed to be missing where another version of
// its template is cached, however large that is.
const minMissingDivisor = 16

// A VM that starts before all of its version is on the node needs this part of it first, as far as is known. See
// decision 38.
const (
	lazyDivisor  = 20
	minLazyBytes = 256 << 20
)

// localityOf returns how much of a version a node has and how many bytes are missing for a start. What
// two versions of a template share is unknown: they are assumed to share the size of the smaller one.
func (n *node) localityOf(v version) (Locality, int64) {
	if _, ok := n.cachedContents[v.contentID]; ok {
		return VersionCached, 0
	}
	if p := n.usage.pulls[v.contentID]; p != nil {
		return VersionPulled, v.bytes / 10 * int64(10-p.progressTenths())
	}
	if size, ok := n.largestCached[v.templateID]; ok {
		if size <= 0 {
			size = v.bytes / 2
		}
		return OlderCached, max(v.bytes-size, v.bytes/minMissingDivisor)
	}
	if n.PullsLazily {
		return NothingCached, min(v.bytes, max(v.bytes/lazyDivisor, minLazyBytes))
	}
	return NothingCached, v.bytes
}
