// Command registry measures the promises that this product makes about its registry: how fast a
// template is pushed and pulled compared to the limits of the disk and the network, what a next tag
// costs, and how another registry handles the same disk.
//
//	go run ./test/bench/registry [-pairs N] [-only LIST] [-check] [-json FILE] [-keep]
//
// The registry is the real program as a separate process, on loopback; the client is that of this
// repository, in a separate process for each transfer. The disks are made by the benchmark: the
// same bytes in every run. What is compared is measured in turns, and every disk that results from
// a pull is compared with the one that was pushed. It takes 15 GB of the temporary directory
// ($TMPDIR) and leaves nothing behind, however it ends.
//
// Invariant: every figure was measured in this run; a row that could not be measured fails the run.
package main
