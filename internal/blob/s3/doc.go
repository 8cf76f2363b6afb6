// Package s3 stores layer files as objects of a bucket.
//
// It does not manage them: the registry decides which layers are needed, pinned or collected. Parts of a push are
// received in a local directory, since an unfinished object cannot be read; the received beginning is uploaded
// concurrently.
//
// Invariant: a layer that List names is complete and stored by the server, and an object is deleted only under the
// lease, by a marker that this process wrote or read when it started.
//
//	<prefix>images_dir/<64 hex digits>.ank        layer of a disk; its name on disk
//	<prefix>state_file_dir/<64 hex digits>.ank    layer of a saved state
//	<prefix>images_dir/<64 hex digits>.ank@<id>   empty: the layer is the object stream_dir/<id>
//	<prefix>stream_dir/<id>                       layer whose name was not known when its upload began
//	<prefix>trash_dir/<epoch nanoseconds>-<name>  marker of a deleted layer, whose objects stay until it is purged
package s3
