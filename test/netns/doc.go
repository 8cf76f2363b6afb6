// Package netns makes machines for tests on one Linux host: network namespaces with an address on a common bridge,
// that can be disconnected, and whose links can be limited to a rate.
//
// A program runs again in its own mount, network and process namespaces, which end with it, so that a killed test
// leaves neither links nor processes behind. It runs as root and needs ip and tc of iproute2.
//
// It knows nothing of clouds: test/ha and test/bench/distribution build theirs from it.
//
// Invariant: outside those namespaces nothing of the host changes.
package netns
