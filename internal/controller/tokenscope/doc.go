// Package tokenscope decides what the short-lived token of a node permits at the registry: the
// template, save or logs that an order of the node needs.
//
// It does not issue tokens, and it does not check them.
//
// Invariant: a token permits nothing on a template, save or instance for which the records have no
// order of that node.
package tokenscope
