// Peer is what bench-registry compares with: the distribution registry, and a client that pushes a
// disk to it as layers of 512 MiB, compressed with zstd, and pulls them. It is a separate module,
// so that the programs of the project do not need its dependencies; the benchmark builds and runs
// it.
package main
