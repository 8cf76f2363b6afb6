// Package sdk tests the modules api and client as a whole: every method of the client against a cloud, the
// client's examples, and a program that requires released versions of both modules.
//
// It has no product code, and tests nothing that package client can test without a cloud: the modules of the SDK
// must not require the module of the programs, not even in their tests.
//
// Invariant: it uses only what the SDK exports.
package sdk
