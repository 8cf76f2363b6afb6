package controller

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// NodeView is a node with everything that is known of it now.
type NodeView struct {
	Node   *farm.Node
	Info   farm.NodeInfo // zero until the node has described itself
	Groups []*farm.Group
	Usage  api.Usage
	Seen   time.Time // last contact; zero when there was none since this replica started

	Unknown int // VMs that nobody owns
}

// Nodes gives every node in the order of their ids.
func (c *Controller) Nodes() []NodeView {
	list := make([]NodeView, 0, c.tables.Nodes.Len())
	for _, node := range c.tables.Nodes.All() {
		list = append(list, c.view(node))
	}
	return list
}

// Node gives one node; farm.CodeNotFound when there is none.
func (c *Controller) Node(ctx context.Context, id string) (NodeView, error) {
	node, _, err := c.lookupNode(ctx, id)
	if err != nil {
		return NodeView{}, err
	}
	return c.view(node), nil
}

func (c *Controller) lookupNode(ctx context.Context, id string) (*farm.Node, int64, error) {
	if node, rev, ok := c.tables.Nodes.Get(id); ok {
		return node, rev, nil
	}
	if !validID(id) {
		return nil, 0, farm.NotFound()
	}
	node, rev, err := c.tables.Nodes.GetLinearizable(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	if node == nil {
		return nil, 0, farm.NotFound()
	}
	return node, rev, nil
}

func (c *Controller) view(node *farm.Node) NodeView {
	v := NodeView{Node: node}
	if info, _, ok := c.tables.Infos.Get(node.ID); ok {
		v.Info = *info
	}
	for _, id := range node.Groups {
		if g, _, ok := c.tables.Groups.Get(id); ok {
			v.Groups = append(v.Groups, g)
		}
	}
	v.Usage, v.Seen = c.link.usage(node.ID)
	foreign, _ := c.link.foreign(node.ID)
	v.Unknown = foreign.VMs
	return v
}

const settingJoinToken = "join-token"

// JoinToken gives the secret that a node needs to join.
func (c *Controller) JoinToken() string { return c.joinToken }

// ensureJoinToken reads the join token, or makes one at the very first start.
func (c *Controller) ensureJoinToken(ctx context.Context) (string, error) {
	if c.opts.JoinToken != "" {
		return c.opts.JoinToken, nil
	}
	if s, _, ok := c.tables.Settings.Get(settingJoinToken); ok {
		return s.Value, nil
	}
	token := secret()
	err := c.store.Commit(ctx, store.Put(c.tables.Settings, settingJoinToken, &Setting{Value: token}, store.IfAbsent))
	if errors.Is(err, store.ErrConflict) { // another replica was first
		s, _, err := c.tables.Settings.GetLinearizable(ctx, settingJoinToken)
		if err == nil && s != nil {
			return s.Value, nil
		}
		return "", err
	}
	return token, err
}

// secret makes 256 random bits as hex.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Join registers a node, or takes one back that was joined before: it keeps its
// id, its groups, its capacity and its instances.
func (c *Controller) Join(ctx context.Context, req api.JoinRequest) (api.JoinAnswer, error) {
	var none api.JoinAnswer
	if subtle.ConstantTimeCompare([]byte(req.Token), []byte(c.joinToken)) != 1 {
		return none, farm.Errorf(farm.CodeUnauthenticated, "wrong join token")
	}
	if err := checkJoin(req); err != nil {
		return none, err
	}
	groups, err := c.groupIDs(req.Groups)
	if err != nil {
		return none, err
	}
	answer := api.JoinAnswer{NodeID: req.NodeID, Credential: req.Credential, Registry: c.opts.RegistryAddress}
	if old, err := c.authenticate(req.NodeID, req.Credential); err == nil {
		return answer, c.rejoin(ctx, old.ID, req, groups)
	}
	if !c.lostIdentity(req) {
		answer.NodeID, answer.Credential = uuid.NewString(), secret()
	}
	now := c.now()
	node := &farm.Node{
		ID: answer.NodeID, Name: req.Name, Host: req.Host, Groups: groups,
		State: farm.NodeOffline, StateReason: "joined, not yet seen", StateSince: now, Joined: now,
		Capacity: req.Capacity, Mode: farm.ByNumber, Credential: digest(answer.Credential),
	}
	if node.Capacity == 0 {
		node.Capacity = farm.DefaultCapacity
	}
	info := &farm.NodeInfo{NodeID: node.ID, Arch: firstOf(req.Arch, "amd64")}
	return answer, c.store.Commit(ctx,
		store.Put(c.tables.Nodes, node.ID, node, store.IfAbsent),
		store.Put(c.tables.Infos, node.ID, info, store.IfAbsent))
}

// Limits of a join request.
const (
	maxNodeName = 255
	maxCapacity = 1000 // more is a slip
)

func checkJoin(req api.JoinRequest) error {
	switch {
	case req.Protocol > api.LinkProtocol:
		return farm.Refused("This controller speaks version %d of the node link, the node version %d: update the controller", api.LinkProtocol, req.Protocol)
	case req.Name == "" || len(req.Name) > maxNodeName:
		return farm.Invalid("name", "must have 1 to %d bytes", maxNodeName)
	case len(req.Host) > maxNodeName:
		return farm.Invalid("host", "must have at most %d bytes", maxNodeName)
	case req.Capacity < 0 || req.Capacity > maxCapacity:
		return farm.Invalid("capacity", "must be between 0 and %d", maxCapacity)
	case req.Arch != "" && req.Arch != "amd64" && req.Arch != "arm64":
		return farm.Invalid("arch", "must be amd64 or arm64")
	}
	return nil
}

// GroupName gives the name of a group; "" when there is none.
func (c *Controller) GroupName(id string) string {
	if g, _, ok := c.tables.Groups.Get(id); ok {
		return g.Name
	}
	return ""
}

// groupIDs resolves groups given by name or id.
func (c *Controller) groupIDs(names []string) ([]string, error) {
	var ids []string
	for _, name := range names {
		found := ""
		for id, g := range c.tables.Groups.All() {
			if id == name || g.Name == name {
				found = id
			}
		}
		if found == "" {
			return nil, farm.Refused("There is no node group %q", name)
		}
		ids = append(ids, found)
	}
	return ids, nil
}

// rejoin takes over what a known node gives anew; what it leaves out stays.
func (c *Controller) rejoin(ctx context.Context, id string, req api.JoinRequest, groups []string) error {
	_, err := store.Update(ctx, c.store, c.tables.Nodes, id, func(n *farm.Node) (*farm.Node, error) {
		if n == nil {
			return nil, farm.NotFound()
		}
		n = n.Clone()
		n.Name, n.Host = req.Name, firstOf(req.Host, n.Host)
		if req.Capacity > 0 {
			n.Capacity = req.Capacity
		}
		if len(groups) > 0 {
			n.Groups = groups
		}
		return n, nil
	})
	return err
}

// noCredential is in place of the digest of a node that does not exist.
var noCredential = strings.Repeat("0", 2*sha256.Size)

// sameDigest says whether a secret has a digest, in constant time.
func sameDigest(secret, want string) bool {
	sum := sha256.Sum256([]byte(secret))
	var have, kept [2 * sha256.Size]byte
	hex.Encode(have[:], sum[:])
	copy(kept[:], want)
	return subtle.ConstantTimeCompare(have[:], kept[:]) == 1 && len(want) == len(kept)
}

// errRemoved says that the credential is right and its node was removed.
var errRemoved = farm.Errorf(farm.CodeUnauthenticated, "the node was removed")

// authenticate checks the credential of a node. It gives errRemoved for a node that
// an operator removed lately.
func (c *Controller) authenticate(id, credential string) (*farm.Node, error) {
	node, _, ok := c.tables.Nodes.Get(id)
	want := noCredential
	if ok {
		want = node.Credential
	} else if removed, _, was := c.tables.Removed.Get(id); was {
		want = removed.Credential
	}
	switch {
	case !sameDigest(credential, want):
		return nil, farm.Errorf(farm.CodeUnauthenticated, "unknown node or wrong credential")
	case !ok:
		return nil, errRemoved
	}
	return node, nil
}

// Disjoin removes a node at its own wish.
func (c *Controller) Disjoin(ctx context.Context, id, credential string) error {
	if _, err := c.authenticate(id, credential); err != nil {
		return err
	}
	return c.removeNode(ctx, id, farm.EventNodeUnregistered)
}

// DeleteNode removes a node that is gone for good. Its instances end: those that
// were terminating are done with, the others go to Error. Should its agent still
// live, it is told to remove its VMs and to end; to come back it must join again.
func (c *Controller) DeleteNode(ctx context.Context, id string) error {
	return c.removeNode(ctx, id, farm.EventDeleteNode)
}

// removeNode is DeleteNode with what the log of events says of it.
func (c *Controller) removeNode(ctx context.Context, id string, why farm.EventName) error {
	node, _, err := c.lookupNode(ctx, id)
	if err != nil {
		return err
	}
	w := c.events.with(c.store, func() farm.Event { return nodeEvent(why, node, nil) })
	err = w.Commit(ctx,
		store.Delete(c.tables.Nodes, id, store.Any), store.Delete(c.tables.Infos, id, store.Any),
		store.Put(c.tables.Removed, id, &RemovedNode{Credential: node.Credential, At: c.now()}, store.Any))
	if err != nil {
		return err
	}
	c.link.drop(id)
	for _, inst := range c.instancesOn(id) {
		if e := c.abandon(ctx, inst.ID); e != nil && err == nil {
			err = e
		}
	}
	return err
}

func (c *Controller) instancesOn(node string) []*farm.Instance {
	var list []*farm.Instance
	for _, inst := range c.tables.Instances.Where(byNode, node) {
		list = append(list, inst)
	}
	return list
}

// abandon ends an instance whose node is removed.
func (c *Controller) abandon(ctx context.Context, id string) error {
	return c.modify(ctx, c.store, id, func(inst *farm.Instance) (*farm.Instance, error) {
		return homeless(inst, c.now()), nil
	})
}
