package controller

import (
	"context"
	"crypto/subtle"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Packages has the agent packages of a controller.
type Packages interface {
	For(system, arch string) (api.AgentPackage, bool)
	All() []api.AgentPackage
	Keys() string                       // public keys of their signers, for nodes that join; "" for none
	Missing(system, arch string) string // how to obtain one
	Problem() string                    // an error that requires an operator; "" for none
	Changed() <-chan struct{}           // has a value when they have changed
}

// noPackages is the Packages of a controller without a directory of packages.
type noPackages struct{}

var _ Packages = noPackages{}

// For implements Packages.
func (noPackages) For(string, string) (p api.AgentPackage, ok bool) { return p, false }

// All implements Packages.
func (noPackages) All() []api.AgentPackage { return nil }

// Keys implements Packages.
func (noPackages) Keys() string { return "" }

// Missing implements Packages.
func (noPackages) Missing(string, string) string { return "This controller has no agent packages" }

// Problem implements Packages.
func (noPackages) Problem() string { return "" }

// Changed implements Packages.
func (noPackages) Changed() <-chan struct{} { return nil }

// AuthorizePackageDownload authorizes a caller to load agent packages: it must have the join token,
// or be a node with its id and its credentiac. Otherwise it returns farm.CodeUnauthenticated.
func (c *Controller) AuthorizePackageDownload(user, secret string) error {
	if subtle.ConstantTimeCompare([]byte(secret), []byte(c.joinToken)) == 1 {
		return nil
	}
	_, err := nodelink.Authenticate(c.tables, user, secret)
	return err
}

// AgentPackages returns the available packages.
func (c *Controller) AgentPackages() []api.AgentPackage { return c.opts.Packages.All() }

const (
	// updateTime is how long one try of an update may take. An agent stops earlier.
	updateTime = 3 * time.Hour
	// updateShare is the divisor of the share of nodes that update simultaneously without a
	// request: the others take new instances.
	updateShare = 10
)

// UpdateNodes makes nodes install their agent package: the named nodes, or all that the caller may
// update. A node that already has it is skipped; one that is Offline follows when it is back.
func (c *Controller) UpdateNodes(ctx context.Context, ask NodeSelector) error {
	ids, named := slices.Clone(ask.NodeIDs), len(ask.NodeIDs) > 0
	if !named {
		ids = slices.Collect(maps.Keys(maps.Collect(c.tables.Nodes.All())))
	}
	slices.Sort(ids)
	var list []string
	missing := ""
	for _, id := range slices.Compact(ids) {
		node, _, err := c.lookupNode(ctx, id)
		if err == nil {
			err = ask.may(id)
		}
		if err != nil {
			if named {
				return err
			}
			continue // removed a moment ago, or not the caller's to update
		}
		info := c.tables.NodeInfo(id)
		if _, ok := c.packageFor(info); ok {
			list = append(list, id)
			continue
		}
		if missing = c.missing(info); named {
			return farm.Refused("Node %s cannot be updated. %s", node.Name, missing)
		}
	}
	if len(list) == 0 {
		if missing == "" && len(c.opts.Packages.All()) == 0 {
			missing = c.missing(&farm.NodeInfo{})
		}
		if missing != "" {
			return farm.Refused("No node can be updated. %s", missing)
		}
		return nil
	}
	all := record.Bulk[farm.Node]{
		Writer: c.store, Limits: c.store.Limits(), Table: c.tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			return c.forced(n), nil
		},
	}
	return all.Update(ctx, list)
}

// missing returns how to obtain a package for a machine.
func (c *Controller) missing(info *farm.NodeInfo) string {
	return c.opts.Packages.Missing(firstOf(info.OS, "linux"), firstOf(info.Arch, "amd64"))
}

// packageFor returns the package for a machine, once its platform is known.
func (c *Controller) packageFor(info *farm.NodeInfo) (api.AgentPackage, bool) {
	if info.OS == "" {
		return api.AgentPackage{}, false
	}
	return c.opts.Packages.For(info.OS, info.Arch)
}

// forced returns a node whose update a caller has requested. A running update to the same package
// continues; one that has failed begins again.
func (c *Controller) forced(n *farm.Node) *farm.Node {
	info := c.tables.NodeInfo(n.ID)
	p, ok := c.packageFor(info)
	switch {
	case !ok, n.Updating() && n.Update.SHA256 == p.SHA256:
		return n
	case info.AgentVersion == p.Version:
		return c.asAsked(n)
	}
	now := c.now()
	n = n.Clone()
	n.Update = &farm.Update{Version: p.Version, SHA256: p.SHA256, Force: true, Asked: now}
	if n.State != farm.NodeUpdating {
		n.BeginUpdate(uuid.NewString(), now)
		return n
	}
	u := *n.Update // another package than that of the try which continues
	u.ID, u.Begun, u.Tries = uuid.NewString(), now, 1
	n.Update, n.StateReason = &u, "its agent becomes "+u.Version
	return n
}

// asAsked returns a node whose agent has the requested version.
func (c *Controller) asAsked(n *farm.Node) *farm.Node {
	if n.Update == nil {
		return n
	}
	n = n.Clone()
	n.EndUpdate("", c.now())
	return n
}

// tidyUpdates begins updates whose time has come, and ends those that take too long. It also
// schedules automatic updates: of every node whose agent has another version than its package,
// unless the package is older. Only a part of the automatic updates runs simultaneously.
func (c *Controller) tidyUpdates(ctx context.Context, w *record.Term, now time.Time) error {
	going, total := 0, 0
	var ids []string
	for id, node := range c.tables.Nodes.All() {
		total++
		if node.Updating() {
			going++
		}
		if c.steered(node, now, true) != node {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	room := max(1, total/updateShare) - going
	all := record.Bulk[farm.Node]{
		Writer: w, Limits: c.store.Limits(), Table: c.tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			next := c.steered(n, now, room > 0)
			if next.Updating() && !n.Updating() && !next.Update.Force {
				room--
			}
			return next, nil
		},
	}
	return all.Update(ctx, ids)
}

// steered returns a node with what its update needs now; the node itself when it needs nothing.
// Without room no automatic update begins.
func (c *Controller) steered(n *farm.Node, now time.Time, room bool) *farm.Node {
	info := c.tables.NodeInfo(n.ID)
	p, ok := c.packageFor(info)
	u := n.Update
	switch {
	case u != nil && info.AgentVersion == u.Version:
		return c.asAsked(n)
	case n.Updating():
		return c.watched(n, now)
	case u != nil && (!ok || u.SHA256 != p.SHA256): // the package has been replaced
		n = n.Clone()
		n.Update = nil
		if ok && u.Force {
			n.Update = &farm.Update{Version: p.Version, SHA256: p.SHA256, Force: true, Asked: now}
		}
		return n
	case u == nil && (!ok || !c.offers(info, p) || !room):
		return n
	case u == nil:
		next := n.Clone()
		next.Update = &farm.Update{Version: p.Version, SHA256: p.SHA256, Asked: now}
		if next.BeginUpdate(uuid.NewString(), now) {
			return next
		}
		return n // not while it is offline
	}
	if due := u.DueAt(); due.IsZero() || due.After(now) || !room && !u.Force {
		return n
	}
	next := n.Clone()
	if !next.BeginUpdate(uuid.NewString(), now) {
		return n
	}
	return next
}

// offers reports whether a node is to install a package without a request.
func (c *Controller) offers(info *farm.NodeInfo, p api.AgentPackage) bool {
	return !c.opts.NoNodeUpgrades && info.AgentVersion != "" && info.AgentVersion != p.Version &&
		!farm.OlderVersion(p.Version, info.AgentVersion)
}

// watched returns a node whose update continues: one that was offline is Updating again, one that
// takes too long has failed.
func (c *Controller) watched(n *farm.Node, now time.Time) *farm.Node {
	next := n.Clone()
	if now.Sub(n.Update.Begun) >= updateTime {
		next.EndUpdate("it did not become that within "+updateTime.String(), now)
		return next
	}
	if (n.State == farm.NodeActive || n.State == farm.NodeUnhealthy) && next.ResumeUpdate(now) {
		return next
	}
	return n
}
