// Package snippet writes requests to the API as code: curl, the command line client, Go, GitHub Actions and GitLab.
//
// It is not a client: it sends nothing.
//
// Invariant: a snippet never contains a secret, and each value is quoted for the language that reads it.
package snippet
