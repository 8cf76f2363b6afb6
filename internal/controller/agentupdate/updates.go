package agentupdate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Updates decides which nodes install another agent, and when.
type Updates struct {
	db       record.DB
	packages Packages
	opts     Options
}

// Options configure Updates. LastContact and ResolveGroups are set.
type Options struct {
	Automatic bool // agents are also updated without a request

	// LastContact returns when a node was last in contact with any replica.
	LastContact func(node string) time.Time
	// ResolveGroups returns the ids of node groups that are given by name or id.
	ResolveGroups func(ctx context.Context, names []string) (ids []string, err error)
}

// New returns the updates with the available packages.
func New(db record.DB, packages Packages, o Options) *Updates {
	return &Updates{db: db, packages: packages, opts: o}
}

const (
	// UpdateTimeout is how long one try of an update may take. An agent stops earlier.
	UpdateTimeout = 3 * time.Hour
	// updateShare is the divisor of the share of nodes that update simultaneously without a
	// request: the others take new instances.
	updateShare = 10
	// contactLimit is how long ago the last contact with a node may be when its update begins: several polls. A node
	// that has died is Offline later, and would be Updating until then.
	contactLimit = 30 * time.Second
)

// isInContact reports whether a node has been in contact lately.
func (s *Updates) isInContact(node string) bool {
	return s.db.Now().Sub(s.opts.LastContact(node)) < contactLimit
}

// Request makes nodes install their agent package: those with the ids, or all without any id. may
// returns why the caller may not update a node; it is nil for a caller who may update all. A node
// that already has its package is skipped; one that is Offline follows when it is back.
func (s *Updates) Request(ctx context.Context, ids []string, may func(id string) error) error {
	s.packages.Refresh()
	ids, named := slices.Clone(ids), len(ids) > 0
	if !named {
		ids = slices.Collect(maps.Keys(maps.Collect(s.db.Tables.Nodes.All())))
	}
	slices.Sort(ids)
	var list []string
	missing := ""
	for _, id := range slices.Compact(ids) {
		node, _, err := record.Lookup(ctx, s.db.Tables.Nodes, id)
		if err == nil && may != nil {
			err = may(id)
		}
		if err != nil {
			if named {
				return err
			}
			continue // removed a moment ago, or not the caller's to update
		}
		info := s.db.Tables.NodeInfo(id)
		if _, ok := s.PackageFor(info); ok {
			list = append(list, id)
			continue
		}
		if missing = s.missing(info); named {
			return farm.Refused("Agent of node %s cannot be updated. %s", node.Name, missing)
		}
	}
	if len(list) == 0 {
		if missing == "" && len(s.packages.Packages()) == 0 {
			missing = s.missing(&farm.NodeInfo{})
		}
		if missing != "" {
			return farm.Refused("No node agent can be updated. %s", missing)
		}
		return nil
	}
	all := record.Bulk[farm.Node]{
		Writer: s.db.Store, Limits: s.db.Store.Limits(), Table: s.db.Tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			return s.requested(n), nil
		},
	}
	return all.Update(ctx, list)
}

// missing returns how to obtain a package for a machine.
func (s *Updates) missing(info *farm.NodeInfo) string {
	return s.packages.MissingHint(cmp.Or(info.OS, "linux"), cmp.Or(info.Arch, "amd64"))
}

// PackageFor returns the package for a machine, once its platform is known.
func (s *Updates) PackageFor(info *farm.NodeInfo) (api.AgentPackage, bool) {
	if info.OS == "" {
		return api.AgentPackage{}, false
	}
	return s.packages.PackageFor(info.OS, info.Arch)
}

// requested returns a node whose update a caller has requested. A running update to the same package
// continues; one that has failed begins again.
func (s *Updates) requested(n *farm.Node) *farm.Node {
	info := s.db.Tables.NodeInfo(n.ID)
	p, ok := s.PackageFor(info)
	switch {
	case !ok, n.IsUpdateRunning() && n.Update.SHA256 == p.SHA256:
		return n
	case info.AgentVersion == p.Version:
		return s.completed(n)
	}
	now := s.db.Now()
	n = n.Clone()
	n.Update = &farm.AgentUpdate{Version: p.Version, SHA256: p.SHA256, Force: true, RequestedAt: now}
	if n.State != farm.NodeUpdating {
		if s.isInContact(n.ID) {
			n.BeginUpdateTry(uuid.NewString(), now)
		}
		return n
	}
	u := *n.Update // another package than that of the try which continues
	u.ID, u.TryBegunAt, u.Tries = uuid.NewString(), now, 1
	n.Update, n.StateReason = &u, "its agent becomes "+u.Version
	return n
}

// completed returns a node whose agent has the requested version.
func (s *Updates) completed(n *farm.Node) *farm.Node {
	if n.Update == nil {
		return n
	}
	n = n.Clone()
	n.EndUpdateTry("", s.db.Now())
	return n
}

// Continue begins updates whose time has come, ends those that take too long, and continues the rollout. It also
// schedules automatic updates: of every node whose agent has another version than its package,
// unless the package is older. Only a part of the automatic updates runs simultaneously.
func (s *Updates) Continue(ctx context.Context, w *record.Term, now time.Time) error {
	if err := s.continueUpdates(ctx, w, now); err != nil {
		return err
	}
	return s.continueRollout(ctx, w, now)
}

func (s *Updates) continueUpdates(ctx context.Context, w *record.Term, now time.Time) error {
	going, total := 0, 0
	var ids []string
	for id, node := range s.db.Tables.Nodes.All() {
		total++
		if node.IsUpdateRunning() && node.State != farm.NodeOffline { // one that is away takes no slot
			going++
		}
		if s.next(node, now, true) != node {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	room := max(1, total/updateShare) - going
	all := record.Bulk[farm.Node]{
		Writer: w, Limits: s.db.Store.Limits(), Table: s.db.Tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			next := s.next(n, now, room > 0)
			if next.IsUpdateRunning() && !n.IsUpdateRunning() && !next.Update.Force {
				room--
			}
			return next, nil
		},
	}
	return all.Update(ctx, ids)
}

// next returns a node with what its update needs now; the node itself when it needs nothing.
// Without room no automatic update begins.
func (s *Updates) next(n *farm.Node, now time.Time, room bool) *farm.Node {
	info := s.db.Tables.NodeInfo(n.ID)
	p, ok := s.PackageFor(info)
	u := n.Update
	switch {
	case u != nil && info.AgentVersion == u.Version:
		return s.completed(n)
	case n.IsUpdateRunning():
		return s.advanceRunning(n, now)
	case u != nil && (!ok || u.SHA256 != p.SHA256): // the package has been replaced
		n = n.Clone()
		n.Update = nil
		if ok && u.Force && u.RolloutID == "" {
			n.Update = &farm.AgentUpdate{Version: p.Version, SHA256: p.SHA256, Force: true, RequestedAt: now}
		}
		return n
	case u == nil && (!ok || !s.needsAutoUpdate(info, p) || !room), u != nil && u.RolloutID != "",
		!s.isInContact(n.ID):
		return n
	case u == nil:
		next := n.Clone()
		next.Update = &farm.AgentUpdate{Version: p.Version, SHA256: p.SHA256, RequestedAt: now}
		if next.BeginUpdateTry(uuid.NewString(), now) {
			return next
		}
		return n // not while it is offline
	}
	if due := u.NextTryAt(); due.IsZero() || due.After(now) || !room && !u.Force {
		return n
	}
	next := n.Clone()
	if !next.BeginUpdateTry(uuid.NewString(), now) {
		return n
	}
	return next
}

// needsAutoUpdate reports whether a node is to install a package without a request.
func (s *Updates) needsAutoUpdate(info *farm.NodeInfo, p api.AgentPackage) bool {
	return s.opts.Automatic && !decidesAbout(s.lastRollout(), p) &&
		info.AgentVersion != "" && info.AgentVersion != p.Version &&
		!farm.IsOlderVersion(p.Version, info.AgentVersion)
}

// advanceRunning returns a node whose update continues: one that was offline is Updating again, one that
// takes too long has failed.
func (s *Updates) advanceRunning(n *farm.Node, now time.Time) *farm.Node {
	next := n.Clone()
	if now.Sub(n.Update.TryBegunAt) >= UpdateTimeout {
		next.EndUpdateTry("it did not become that within "+UpdateTimeout.String(), now)
		return next
	}
	if (n.State == farm.NodeActive || n.State == farm.NodeUnhealthy) && next.ResumeUpdateTry(now) {
		return next
	}
	return n
}

// Packages returns the available packages.
func (s *Updates) Packages() []api.AgentPackage { return s.packages.Packages() }
