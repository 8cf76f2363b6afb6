// Package decmpfstest compresses files in every kind that Apple's systems use, for tests.
//
// It is not for products: it compresses little, and slowly.
//
// Invariant: the same content always produces the same bytes.
package decmpfstest
