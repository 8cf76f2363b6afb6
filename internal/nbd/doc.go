// Package nbd serves disks to QEMU by the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md): the fixed newstyle
// handshake, structured replies and the metadata context base:allocation. Disks are read-only.
//
// It is the protocol alone: where the bytes of a disk come from, and who may connect, is the caller's part. It is no
// client, and offers no TLS: its sockets are on one host.
//
// Invariant: a request is answered with bytes that the disk returned for exactly that range, or with an error; the
// memory of a connection is bounded.
package nbd
