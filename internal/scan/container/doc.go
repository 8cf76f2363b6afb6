// Package container reads container images that are files: an OCI image layout as a directory or a tar archive, and
// the archive of "docker save". It presents the layers of an image as one file system, merged as a container engine
// unpacks them. Sources of the formats: the OCI image specification 1.1 (image-layout.md, layer.md), the Docker image
// specification 1.3, and what skopeo, umoci, buildah and containerd do.
//
// It asks no registry, unpacks nothing to disk, and verifies no signature. Each layer is decompressed once, in
// streams: of the files that a scan reads, the content that it needs is kept in memory, at most 96 MiB in all, and one
// file of at most 48 MiB while it is found out what is needed of it. What does not fit is decompressed again when it is
// read, in the order of the archive, and at most 32 MiB of that are kept. An entry of a layer takes about 300 bytes and
// its path; there are at most 2 million.
//
// Invariant: archives are untrusted. Whatever their bytes are, reading one takes bounded memory and ends; a part that
// could not be read, or does not have its digest, is named.
package container
