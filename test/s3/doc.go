// Command s3 tries the registry with its storage in a bucket: real registry processes, a real S3 server (versitygw),
// and a proxy between them that counts, delays, fails and cuts requests, or kills the registry at one of them.
//
// It is not a test of the S3 server. What that one guarantees is stated by the case "server".
//
// Invariant: a version whose push was acknowledged is pulled and compared at the end of every case.
package main
