// Package blob implements layer files: one immutable file for each version and disk of a template, made of
// frames of at most 1 MiB, an index and a footer. It writes and reads the format and defines the interface of a
// store of layer files.
//
// It is not the registry and not a client: it knows no template, no tag, no HTTP. docs/reference/layer-format.md
// describes every byte.
//
// Invariant: the name of a layer is the sha256 of its index, the index contains the sha256 of every stored
// frame, and no frame is decoded before its hash was verified, so a right name makes any source of the bytes
// safe.
package blob
