package nodes

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// keepRemoved is how long the record of a removed node is kept.
const keepRemoved = 7 * 24 * time.Hour

// Disjoin removes a node at its own request.
func (n *Nodes) Disjoin(ctx context.Context, id, credential string) error {
	if _, err := n.opts.Link.Authenticate(id, credential); err != nil {
		return err
	}
	return n.remove(ctx, id, farm.EventNodeUnregistered)
}

// Delete removes a node that does not come back. Its instances end: terminating ones become
// Terminated, the others go to Error. If its agent still runs, it has to remove its VMs and to exit;
// to come back it must join again.
func (n *Nodes) Delete(ctx context.Context, id string) error {
	return n.remove(ctx, id, farm.EventDeleteNode)
}

func (n *Nodes) remove(ctx context.Context, id string, event farm.EventName) error {
	node, _, err := record.Lookup(ctx, n.db.Tables.Nodes, id)
	if err != nil {
		return err
	}
	w := n.opts.WithEvent(n.db.Store, func() farm.Event { return farm.NewNodeEvent(event, node, nil) })
	err = w.Commit(ctx,
		store.Delete(n.db.Tables.Nodes, id, store.Any), store.Delete(n.db.Tables.Infos, id, store.Any),
		store.Put(n.db.Tables.Removed, id, &record.RemovedNode{Credential: node.Credential, At: n.db.Now()}, store.Any))
	if err != nil {
		return err
	}

	n.opts.Sessions.Drop(id)
	for inst := range n.db.Tables.Instances.Where(record.ByNode, id) {
		failed := n.opts.FailInstance(ctx, inst)
		if err == nil && farm.CodeOf(failed) != farm.CodeNotFound {
			err = failed
		}
	}
	return err
}

// Prune deletes the records of nodes that were removed long ago.
func (n *Nodes) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	for id, node := range n.db.Tables.Removed.All() {
		if now.Sub(node.At) <= keepRemoved {
			continue
		}
		if err := w.Commit(ctx, store.Delete(n.db.Tables.Removed, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
