// Command openapi makes clients of api/openapi.yaml with common generators, compiles them, and starts
// and terminates an instance with one of them.
//
//	go run ./test/openapi -tools DIR [-keep]
//
// The generators are oapi-codegen for Go, with its defaults, and openapi-typescript for TypeScript,
// whose types are checked by tsc. openapi-typescript gets one option, so that a field of a request
// that has a default value stays optional. Versions are pinned in scripts/need.sh and testdata. It
// is not a test of the API itself: test/contract is.
//
// Invariant: a generator that is not installed is a failure, never a step that is left out.
package main
