//go:build race

package etcd

// raceDetector reports whether the tests run under the race detector.
const raceDetector = true
