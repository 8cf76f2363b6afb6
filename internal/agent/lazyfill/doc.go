// Package lazyfill is the process that pulls a version while VMs already read its disks, and what the agent needs of
// it: its start, and its control by a unix socket.
//
// The process outlives the agent. It serves each disk by NBD on one socket per VM, to that VM's process only, and
// fetches what a guest waits for first. It decides neither which VMs use a version nor when it ends, and it does not
// list the version in the cache: both are the agent's part.
//
// Invariant: a process that was killed and started again serves the same VMs at the same sockets; a byte is served
// only after the frame that it is in was verified.
package lazyfill
