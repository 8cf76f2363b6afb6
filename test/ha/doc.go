// Command ha runs a cloud without a single point of failure as real processes, each in a network
// namespace: three etcd members, three controllers, HAProxy with the configuration of this repository, a
// registry, and nodes with simulated VMs. It breaks each part in each way while clients work:
//
//	go run ./test/ha -n 20 [-only REGEXP] [-seed S] [-json FILE]
//
//	drills    kill, freeze, partition, full disk and clock jump of a controller, an etcd member,
//	          the registry and a node, n times each: no acknowledged call is lost, no instance
//	          runs twice, no VM is orphaned
//	quorum    two of three etcd members freeze: calls are refused, and resume afterwards
//	proxy     HAProxy drains a controller, and a console is opened through it
//	versions  an etcd of each supported minor version with certificates, a user and a role on the
//	          prefix alone: records move there and back, and are backed up and restored; an
//	          older etcd is refused
//
// The workload and its checks are those of package fault. It runs as root, in mount, network and
// process namespaces, which end with it.
//
// The clock of one process cannot be set. Programs for clock jumps are built with a copy of package
// time whose wall clock adds an offset from a file: the monotonic clock continues, as on a machine whose
// clock is set.
//
// It measures no speed, see test/bench/ha.
//
// Invariant: a case that did not do all its faults has failed.
package main
