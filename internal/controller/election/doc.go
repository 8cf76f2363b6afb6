// Package election makes one replica of the controller the leader: the one that holds a lease.
//
// It excludes what the leader does: that gets the leader term, through which it writes.
//
// Invariant: a term begins only once the replica has every record from before it, and no write of a
// term is accepted after its lease is lost.
package election
