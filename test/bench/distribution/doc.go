// Command distribution measures starts on nodes without the template, how a version reaches many nodes, and starts that
// claim a standby:
//
//	go run ./test/bench/distribution [-only ROW,...] [-json FILE] [-check]
//
// Controller, registry and nodes are real processes, each node in a network namespace whose link is limited by the
// kernel's token bucket filter. The guest is a Debian with systemd on a disk of 8 GB with more than 3 GB of noise, see
// guest.sh; the standbys are those of the demo guest; QEMU runs both. Each ratio is of two times of one run. It runs as
// root, in mount, network and process namespaces, which end with it.
//
// It compares no bytes: test/fault does that.
//
// Invariant: a row whose starts did not all succeed is not measured.
package main
