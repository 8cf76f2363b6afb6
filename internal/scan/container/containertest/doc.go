// Package containertest writes container images for tests: an OCI image layout, or an archive of Docker, of layers in
// the source of a test or of a directory.
//
// It is for tests only; what real programs write is in test/images.
//
// Invariant: equal layers and options are equal bytes.
package containertest
