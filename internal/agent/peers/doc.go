// Package peers lets nodes read the frames of versions from each other: a server of what this node has, and the reading
// side for one pull.
//
// It keeps no versions and writes no files. It does not know whether bytes are right: the pull compares them with the
// sums in the layer's index before it writes them.
//
// Invariant: bytes of a version are sent only to the node that a token of the cloud names, which has proven that it has
// the key of its certificate; and a peer that sent wrong bytes is not used for ExclusionTime.
package peers
