// Package peers hands out the nodes from which a node may read a version that it has an order to cache, each with a
// token that the cloud's key signs.
//
// It moves no bytes, and knows which nodes have a version by their descriptions, and which pull it by their requests to
// this replica. Whether what a peer sends is right is up to the node that reads it.
//
// Invariant: a token is handed out only for a version that the node has an order to cache, and permits nothing to other
// nodes.
package peers
