package controller

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Join registers a node that presents the join token.
func (c *Controller) Join(ctx context.Context, req api.JoinRequest) (api.JoinAnswer, error) {
	if subtle.ConstantTimeCompare([]byte(req.Token), []byte(c.joinToken)) != 1 {
		return api.JoinAnswer{}, farm.Errorf(farm.CodeUnauthenticated, "wrong join token")
	}
	return c.JoinWithKey(ctx, req, "")
}

// JoinWithKey registers a node that may join, or a returning one: that keeps its id, its groups,
// its capacity and its instances, and the configuration by an operator has precedence over that of
// its earlier join. keyID is that of the API key with which it joins this time, or "".
func (c *Controller) JoinWithKey(ctx context.Context, req api.JoinRequest, keyID string) (api.JoinAnswer, error) {
	var none api.JoinAnswer
	if err := nodeinput.Join(&req); err != nil {
		return none, err
	}
	old, err := nodelink.Authenticate(c.tables, req.NodeID, req.Credential)
	known := err == nil
	answer := api.JoinAnswer{
		NodeID: req.NodeID, Credential: req.Credential, Registry: c.opts.RegistryAddress,
		UpdateKeys: c.opts.Packages.Keys(),
	}
	if !known && !c.lostIdentity(req) {
		answer.NodeID, answer.Credential = uuid.NewString(), secret()
	}
	for range statusAttempts {
		if known {
			err = c.rejoin(ctx, old.ID, keyID, req)
		} else {
			err = c.enroll(ctx, answer, keyID, req)
		}
		if !errors.Is(err, store.ErrConflict) {
			return answer, err
		}
		if err := c.db.UpToDate(ctx); err != nil {
			return none, farm.Unavailable(err, "The store cannot be reached; try again")
		}
	}
	return none, err
}

// enroll creates the record of a new node.
func (c *Controller) enroll(ctx context.Context, is api.JoinAnswer, keyID string, req api.JoinRequest) error {
	groups, checks, err := c.joinGroups(ctx, req)
	if err != nil {
		return err
	}
	now := c.now()
	node := &farm.Node{
		ID: is.NodeID, Name: req.Name, Host: req.Host, Groups: groups,
		State: farm.NodeOffline, StateReason: "joined, not yet seen", StateSince: now, Joined: now,
		Capacity: req.Capacity, Mode: farm.CapacityByVMs, Credential: digest(is.Credential), KeyID: keyID,
	}
	if node.Capacity == 0 {
		node.Capacity = farm.DefaultCapacity
	}
	info := &farm.NodeInfo{NodeID: node.ID, Arch: firstOf(req.Arch, "amd64")}
	return c.store.Commit(ctx, append(checks,
		store.Put(c.tables.Nodes, node.ID, node, store.IfAbsent),
		store.Put(c.tables.Infos, node.ID, info, store.IfAbsent))...)
}

// rejoin applies the fields that a known node sends again; fields that it leaves out, or has only
// kept from an earlier join, stay.
func (c *Controller) rejoin(ctx context.Context, id, keyID string, req api.JoinRequest) error {
	groups, checks, err := c.joinGroups(ctx, req)
	if err != nil {
		return err
	}
	node, rev, err := record.Lookup(ctx, c.tables.Nodes, id)
	if err != nil {
		return err
	}
	n := node.Clone()
	n.KeyID = keyID
	anew := func(field string) bool { return !slices.Contains(req.Kept, field) }
	if anew(api.KeptName) {
		n.Name = req.Name
	}
	switch {
	case anew(api.KeptHost):
		n.Host, n.HostFixed = firstOf(req.Host, n.Host), false
	case !n.HostFixed:
		n.Host = firstOf(req.Host, n.Host)
	}
	if req.Capacity > 0 && anew(api.KeptCapacity) {
		n.Capacity = req.Capacity
	}
	if len(groups) > 0 && anew(api.KeptGroups) {
		n.Groups = groups
	}
	if sameJoin(n, node) {
		return nil
	}
	if !c.Link.Sessions.TakeWrite(id) {
		return &farm.Error{
			Code: farm.CodeTooMany, RetryAfter: nodelink.WriteInterval,
			Message: fmt.Sprintf("Node %s changes too often; try again in %s", node.Name, nodelink.WriteInterval),
		}
	}
	return c.store.Commit(ctx, append(checks, store.Put(c.tables.Nodes, id, n, store.IfRev(rev)))...)
}

// sameJoin reports whether a join has changed nothing of a node.
func sameJoin(a, b *farm.Node) bool {
	return slices.Equal(a.Groups, b.Groups) && a.Name == b.Name && a.Host == b.Host && a.HostFixed == b.HostFixed &&
		a.Capacity == b.Capacity && a.KeyID == b.KeyID
}

// AuthenticateNode returns the record of a node that presents its credential;
// farm.CodeUnauthenticated for any other. The caller must not change it.
func (c *Controller) AuthenticateNode(id, credential string) (*farm.Node, error) {
	return nodelink.Authenticate(c.tables, id, credential)
}

// AuthorizePackageDownload authorizes a caller to load agent packages: it must have the join token,
// or be a node with its id and its credentiac. Otherwise it returns farm.CodeUnauthenticated.
func (c *Controller) AuthorizePackageDownload(user, secret string) error {
	if subtle.ConstantTimeCompare([]byte(secret), []byte(c.joinToken)) == 1 {
		return nil
	}
	_, err := nodelink.Authenticate(c.tables, user, secret)
	return err
}

// joinGroups returns the groups of a join. Kept ones that no longer exist are left out.
func (c *Controller) joinGroups(
	ctx context.Context, req api.JoinRequest,
) (ids []string, checks []store.Change, err error) {
	if !slices.Contains(req.Kept, api.KeptGroups) {
		return c.Groups.Named(ctx, req.Groups)
	}
	for _, name := range req.Groups {
		id, check, err := c.Groups.Named(ctx, []string{name})
		if err == nil && !slices.Contains(ids, id[0]) && len(ids) < groups.MaxPerNode {
			ids, checks = append(ids, id[0]), append(checks, check[0])
		}
	}
	return ids, checks, nil
}
