package controller

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// NodeView is a node with its present state.
type NodeView struct {
	Node   *farm.Node
	Info   farm.NodeInfo // zero until the node has described itself
	Groups []*farm.Group
	Usage  api.Usage
	Seen   time.Time // last contact; zero when there was none since this replica started

	VCPULimit, RAMLimit int // MB; what VMs may have together in the capacity mode resource, 0 in the other one

	Unknown   int    // orphaned VMs
	Stage     string // of an update of its agent, in words; "" without one, or when it is not known here
	Remaining int    // of a drained node: the instances that still use capacity there
}

// Nodes returns every node in the order of their ids.
func (c *Controller) Nodes() []NodeView {
	list := make([]NodeView, 0, c.tables.Nodes.Len())
	for _, node := range c.tables.Nodes.All() {
		list = append(list, c.view(node))
	}
	return list
}

// CachedVersions yields the id of every node with its cached versions.
func (c *Controller) CachedVersions() iter.Seq2[string, []farm.NodeTemplate] {
	return func(yield func(string, []farm.NodeTemplate) bool) {
		for id := range c.tables.Nodes.All() {
			if !yield(id, c.tables.NodeInfo(id).Templates) {
				return
			}
		}
	}
}

// Node returns one node; farm.CodeNotFound when there is none.
func (c *Controller) Node(ctx context.Context, id string) (NodeView, error) {
	node, _, err := record.Lookup(ctx, c.tables.Nodes, id)
	if err != nil {
		return NodeView{}, err
	}
	return c.view(node), nil
}

func (c *Controller) view(node *farm.Node) NodeView {
	v := NodeView{Node: node}
	if info, _, ok := c.tables.Infos.Get(node.ID); ok {
		v.Info = *info
		if len(info.USB) > 0 {
			v.Info.USB = c.placer.Devices(node.ID)[0]
		}
	}
	for _, id := range node.Groups {
		if g, _, ok := c.tables.Groups.Get(id); ok {
			v.Groups = append(v.Groups, g)
		}
	}
	if node.Mode == farm.CapacityByResources {
		v.VCPULimit, v.RAMLimit = sched.Limits(node, &v.Info)
	}
	foreign, _ := c.Link.Orphans.Load(node.ID)
	v.Unknown = foreign.VMs
	v.Usage, v.Seen = c.usage(node, foreign)
	v.Stage = c.Link.Sessions.UpdateStage(node)
	if node.Drain {
		v.Remaining = c.remaining(node.ID)
	}
	return v
}

// usage returns the resources that the VMs on a node use, and when the node was last in contact.
// The VMs are those with a record that run, and the orphaned ones. The load is the node's last
// report to this replica, or to another one, whose digest brings it within nodelink.MaxDigestInterval. A node that
// is not Offline has been in contact with some replica lately.
func (c *Controller) usage(node *farm.Node, foreign sched.Load) (u api.Usage, seen time.Time) {
	now := c.now()
	said, seen := c.Link.Sessions.Usage(node.ID)
	if other, ok := c.Link.Peers.LaterReport(node.ID, seen); ok {
		said.CPU, said.RAM, seen = other.CPU, other.RAM, other.LastContact
	}
	if now.Sub(seen) <= nodelink.ContactGap {
		u.CPU, u.RAM = said.CPU, said.RAM
	} else {
		seen = latest(seen, c.Link.Peers.LastContact(node.ID), node.StateSince)
		if node.State != farm.NodeOffline {
			seen = latest(seen, now.Add(-c.opts.NodeTimeout))
		}
	}
	taken := c.tables.Instances.Snapshot().Sum(record.UsageByNode, node.ID)
	u.VMs, u.VCPUs, u.VRAM = foreign.VMs+taken[0], foreign.VCPU+taken[1], foreign.MemoryMB+taken[2]
	return u, seen
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

const settingJoinToken = "join-token"

// JoinToken returns the secret that a node needs to join.
func (c *Controller) JoinToken() string { return c.joinToken }

// ensureJoinToken reads the join token, or creates one at the very first start.
func (c *Controller) ensureJoinToken(ctx context.Context) (string, error) {
	if c.opts.JoinToken != "" {
		return c.opts.JoinToken, nil
	}
	if s, _, ok := c.tables.Settings.Get(settingJoinToken); ok {
		return s.Value, nil
	}
	token := secret()
	err := c.store.Commit(ctx, store.Put(c.tables.Settings, settingJoinToken, &record.Setting{Value: token},
		store.IfAbsent))
	if errors.Is(err, store.ErrConflict) { // another replica was first
		s, _, err := c.tables.Settings.GetLinearizable(ctx, settingJoinToken)
		if err == nil && s != nil {
			return s.Value, nil
		}
		return "", err
	}
	return token, err
}

// secret returns 256 random bits as hex.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// VerifyNodeCredential refuses a credential that is not a node's. Credentials of removed nodes
// pass: their agents have to learn of the removal. It compares with every node, and is called
// before more expensive work.
func (c *Controller) VerifyNodeCredential(credential string) error {
	have := digest(credential)
	for _, n := range c.tables.Nodes.All() {
		if n.Credential == have {
			return nil
		}
	}
	for _, n := range c.tables.Removed.All() {
		if n.Credential == have {
			return nil
		}
	}
	return farm.Errorf(farm.CodeUnauthenticated, "the credential does not belong to a node")
}

// Disjoin removes a node at its own wish.
func (c *Controller) Disjoin(ctx context.Context, id, credential string) error {
	if _, err := nodelink.Authenticate(c.tables, id, credential); err != nil {
		return err
	}
	return c.removeNode(ctx, id, farm.EventNodeUnregistered)
}

// DeleteNode removes a node that does not come back. Its instances end: terminating ones become
// Terminated, the others go to Error. If its agent still runs, it has to remove its VMs and to
// exit; to come back it must join again.
func (c *Controller) DeleteNode(ctx context.Context, id string) error {
	return c.removeNode(ctx, id, farm.EventDeleteNode)
}

// removeNode is DeleteNode with the name of its event.
func (c *Controller) removeNode(ctx context.Context, id string, why farm.EventName) error {
	node, _, err := record.Lookup(ctx, c.tables.Nodes, id)
	if err != nil {
		return err
	}
	w := c.Events.With(c.store, func() farm.Event { return farm.NewNodeEvent(why, node, nil) })
	err = w.Commit(ctx,
		store.Delete(c.tables.Nodes, id, store.Any), store.Delete(c.tables.Infos, id, store.Any),
		store.Put(c.tables.Removed, id, &record.RemovedNode{Credential: node.Credential, At: c.now()}, store.Any))
	if err != nil {
		return err
	}
	c.Link.Sessions.Drop(id)
	for _, inst := range c.instancesOn(id) {
		e := c.abandon(ctx, inst.ID)
		if farm.CodeOf(e) == farm.CodeNotFound {
			continue // it has ended since
		}
		if err == nil {
			err = e
		}
	}
	return err
}

func (c *Controller) instancesOn(node string) []*farm.Instance {
	var list []*farm.Instance
	for _, inst := range c.tables.Instances.Where(record.ByNode, node) {
		list = append(list, inst)
	}
	return list
}

// abandon ends an instance whose node is removed.
func (c *Controller) abandon(ctx context.Context, id string) error {
	return c.modify(ctx, c.store, id, func(inst *farm.Instance) (*farm.Instance, error) {
		return failRemovedNode(inst, c.now()), nil
	})
}
