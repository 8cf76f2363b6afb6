package nodes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Join registers a node that presents the join token.
func (n *Nodes) Join(ctx context.Context, req api.JoinRequest) (api.JoinAnswer, error) {
	if _, err := n.opts.Tokens.Admit(req.Token); err != nil {
		return api.JoinAnswer{}, err
	}
	return n.joinAs(ctx, req, "", func() ([]store.Change, error) { return n.opts.Tokens.Admit(req.Token) })
}

// JoinWithKey registers a node that may join, or a returning one: that keeps its id, its groups, its
// capacity and its instances, and the configuration by an operator has precedence over that of its
// earlier join. keyID is that of the API key with which it joins this time, or "".
func (n *Nodes) JoinWithKey(ctx context.Context, req api.JoinRequest, keyID string) (api.JoinAnswer, error) {
	return n.joinAs(ctx, req, keyID, func() ([]store.Change, error) { return nil, nil })
}

// joinAs registers a node with a key or a token. use returns the changes that use the token up.
func (n *Nodes) joinAs(
	ctx context.Context, req api.JoinRequest, keyID string, use func() ([]store.Change, error),
) (api.JoinAnswer, error) {
	var none api.JoinAnswer
	if err := nodeinput.Join(&req); err != nil {
		return none, err
	}
	old, err := n.opts.Link.Authenticate(req.NodeID, req.Credential)
	known := err == nil
	answer := api.JoinAnswer{
		NodeID: req.NodeID, Credential: req.Credential, Registry: n.opts.RegistryAddress,
		UpdateKeys: n.opts.UpdateKeys(), Cloud: n.opts.Announcement(),
	}
	if !known && !n.lostIdentity(req) {
		answer.NodeID, answer.Credential = uuid.NewString(), newSecret()
	}
	for range record.TxnAttempts {
		used, err := use()
		if err != nil {
			return none, err
		}
		if known {
			err = n.rejoin(ctx, old.ID, keyID, req, used)
		} else {
			err = n.create(ctx, answer, keyID, req, used)
		}
		if !errors.Is(err, store.ErrConflict) {
			return answer, err
		}
		if err := n.db.UpToDate(ctx); err != nil {
			return none, farm.Unavailable(err, "The store cannot be reached; try again")
		}
	}
	return none, farm.Errorf(farm.CodeBusy, "The node could not be registered: its record changes too often; try again")
}

// lostIdentity reports whether a node joins with an identity whose record was lost: then it keeps its
// id, and so its VMs, about which an operator decides. An identity that was removed, or that another
// node has, does not qualify.
func (n *Nodes) lostIdentity(req api.JoinRequest) bool {
	_, _, exists := n.db.Tables.Nodes.Get(req.NodeID)
	_, _, removed := n.db.Tables.Removed.Get(req.NodeID)
	raw, err := hex.DecodeString(req.Credential)
	id, idErr := uuid.Parse(req.NodeID)
	return !exists && !removed && err == nil && len(raw) == sha256.Size && idErr == nil && id.String() == req.NodeID
}

// create creates the record of a new node, in one transaction with other changes.
func (n *Nodes) create(
	ctx context.Context, as api.JoinAnswer, keyID string, req api.JoinRequest, others []store.Change,
) error {
	groups, checks, err := n.groupsOf(ctx, req)
	if err != nil {
		return err
	}
	now := n.db.Now()
	node := &farm.Node{
		ID: as.NodeID, Name: req.Name, Host: req.Host, Groups: groups,
		State: farm.NodeOffline, StateReason: "joined, not yet seen", StateSince: now, Joined: now,
		Capacity: req.Capacity, CapacityMode: farm.CapacityByVMs, Credential: digest(as.Credential), KeyID: keyID,
	}
	if node.Capacity == 0 {
		node.Capacity = farm.DefaultCapacity
	}
	info := &farm.NodeInfo{NodeID: node.ID, Arch: cmp.Or(req.Arch, "amd64")}
	return n.db.Store.Commit(ctx, slices.Concat(checks, others, []store.Change{
		store.Put(n.db.Tables.Nodes, node.ID, node, store.IfAbsent),
		store.Put(n.db.Tables.Infos, node.ID, info, store.IfAbsent),
	})...)
}

// rejoin applies the fields that a known node sends again; fields that it leaves out, or has only
// kept from an earlier join, stay.
func (n *Nodes) rejoin(ctx context.Context, id, keyID string, req api.JoinRequest, others []store.Change) error {
	groups, checks, err := n.groupsOf(ctx, req)
	if err != nil {
		return err
	}
	old, rev, err := record.Lookup(ctx, n.db.Tables.Nodes, id)
	if err != nil {
		return err
	}
	node := old.Clone()
	node.KeyID = keyID
	isNew := func(field string) bool { return !slices.Contains(req.Kept, field) }
	if isNew(api.KeptName) {
		node.Name = req.Name
	}
	switch {
	case isNew(api.KeptHost):
		node.Host, node.HostFixed = cmp.Or(req.Host, node.Host), false
	case !node.HostFixed:
		node.Host = cmp.Or(req.Host, node.Host)
	}
	if req.Capacity > 0 && isNew(api.KeptCapacity) {
		node.Capacity = req.Capacity
	}
	if len(groups) > 0 && isNew(api.KeptGroups) {
		node.Groups = groups
	}

	switch {
	case sameJoin(node, old) && len(others) == 0:
		return nil
	case sameJoin(node, old):
		return n.db.Store.Commit(ctx, others...)
	}
	if err := n.opts.Sessions.CountWrite(old); err != nil {
		return err
	}
	return n.db.Store.Commit(ctx,
		slices.Concat(checks, others, []store.Change{store.Put(n.db.Tables.Nodes, id, node, store.IfRev(rev))})...)
}

// sameJoin reports whether a join has changed nothing of a node.
func sameJoin(a, b *farm.Node) bool {
	return slices.Equal(a.Groups, b.Groups) && a.Name == b.Name && a.Host == b.Host && a.HostFixed == b.HostFixed &&
		a.Capacity == b.Capacity && a.KeyID == b.KeyID
}

// groupsOf returns the groups of a join. Kept ones that no longer exist are left out.
func (n *Nodes) groupsOf(ctx context.Context, req api.JoinRequest) (ids []string, checks []store.Change, err error) {
	if !slices.Contains(req.Kept, api.KeptGroups) {
		return n.opts.ResolveGroups(ctx, req.Groups)
	}
	for _, name := range req.Groups {
		id, check, err := n.opts.ResolveGroups(ctx, []string{name})
		if err == nil && !slices.Contains(ids, id[0]) && len(ids) < nodeinput.MaxGroups {
			ids, checks = append(ids, id[0]), append(checks, check[0])
		}
	}
	return ids, checks, nil
}
