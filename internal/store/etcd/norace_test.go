//go:build !race

package etcd

// raceDetector says that the tests run under it.
const raceDetector = false
