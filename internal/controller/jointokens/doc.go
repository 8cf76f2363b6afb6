// Package jointokens has the join tokens of a cloud: the secrets with which machines become nodes. One token is
// permanent and is created at the first start; callers create others, which may expire or work once.
//
// It does not join nodes, and knows no other credentials.
//
// Invariant: the store has the SHA-256 of a token only, and a token that works once is deleted in the transaction
// that registers its node.
package jointokens
