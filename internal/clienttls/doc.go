// Package clienttls reads the certificates and authorities that clients of the registry and of controllers are given as
// files.
//
// It opens no connection and knows no server.
//
// Invariant: a client certificate is never used without its key.
package clienttls
