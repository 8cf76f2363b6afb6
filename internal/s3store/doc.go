// Package s3store accesses one prefix of one S3 bucket: objects, conditional writes, multipart uploads, presigned
// URLs, the lease of the prefix, and the test of a server before it is used.
//
// It is not a store of layers and knows no template: blob/s3 and layout/objects decide which objects exist.
//
// Invariant: no write that another registry could undo, and no delete, is sent after the lease of this process has
// ended by its own clock, and a delete that is delayed on the way is refused by the server.
package s3store
