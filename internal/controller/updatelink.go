package controller

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// reportedUpdate is the update that this replica has sent to a node, and the node's last status.
type reportedUpdate struct {
	fresh  bool      // there is one that may not have been sent yet
	id     string    // of the one that was sent
	at     time.Time // when it was sent to the present agent
	status *api.UpdateStatus
}

// AuthorizePackageDownload authorizes a caller to load agent packages: it must have the join token,
// or be a node with its id and its credential. Otherwise it returns farm.CodeUnauthenticated.
func (c *Controller) AuthorizePackageDownload(user, secret string) error {
	if subtle.ConstantTimeCompare([]byte(secret), []byte(c.joinToken)) == 1 {
		return nil
	}
	_, err := c.authenticate(user, secret)
	return err
}

// AgentPackages returns the available packages.
func (c *Controller) AgentPackages() []api.AgentPackage { return c.opts.Packages.All() }

// followUpdate wakes the poll of a node that has a new update.
func (l *nodeSessions) followUpdate(old, now *farm.Node) {
	if !now.Updating() || old != nil && old.Update == now.Update {
		return
	}
	s := l.session(now.ID)
	if s == nil {
		return
	}
	s.mu.Lock()
	fresh := s.update.id != now.Update.ID
	s.update.fresh = s.update.fresh || fresh
	s.mu.Unlock()
	if fresh {
		s.ring()
	}
}

// hasUpdate reports whether there is an update that the node has not received yet.
func (s *session) hasUpdate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update.fresh
}

// offer returns the update for the node; nil for none.
func (c *Controller) offer(s *session) *api.AgentUpdate {
	node, _, ok := c.tables.Nodes.Get(s.node)
	if !ok || !node.Updating() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.update = reportedUpdate{}
		return nil
	}
	u := node.Update
	p, ok := c.packageFor(c.infoOn(node.ID))
	if !ok || p.SHA256 != u.SHA256 {
		return nil // the package was removed; the leader ends the update
	}
	now := c.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update.fresh = false
	if s.update.id != u.ID {
		s.update.id, s.update.at, s.update.status = u.ID, now, nil
	}
	return &api.AgentUpdate{ID: u.ID, Package: p, Force: u.Force}
}

// hearUpdate processes a node's report of its update: its agent has the new version, the update
// failed, or its stage. An agent that received an update and reports nothing does not support
// updates.
func (c *Controller) hearUpdate(ctx context.Context, s *session, node *farm.Node, req *api.PollRequest) error {
	if !node.Updating() {
		return nil
	}
	id := node.Update.ID
	done, failure := c.infoOn(node.ID).AgentVersion == node.Update.Version, ""
	now := c.now()
	s.mu.Lock()
	if req.Update != nil && req.Update.ID == id {
		s.update.status = req.Update
	}
	status := s.update.status
	deaf := status == nil && s.update.id == id && now.Sub(s.update.at) >= deafTime
	s.mu.Unlock()
	switch {
	case done:
	case status != nil && status.Stage == api.UpdateFailed:
		failure = firstOf(status.Message, "the agent does not say why")
	case deaf:
		failure = "the agent that runs there knows no updates; install " + node.Update.Version + " on the node by hand"
	default:
		return nil
	}
	_, err := store.Update(ctx, c.store, c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil || !n.Updating() || n.Update.ID != id {
			return n, nil
		}
		n = n.Clone()
		n.EndUpdate(failure, c.now())
		return n, nil
	})
	if err != nil {
		return err
	}
	if done {
		c.log.InfoContext(ctx, "the agent of a node is updated", "node", node.ID, "name", node.Name, "version",
			node.Update.Version)
	} else {
		c.log.WarnContext(ctx, "the agent of a node could not be updated", "node", node.ID, "name", node.Name,
			"version", node.Update.Version, "error", failure)
	}
	return nil
}

// updateStage returns the stage of a node's update in words; "" when that is not known.
func (l *nodeSessions) updateStage(node *farm.Node) string {
	s := l.find(node.ID)
	if s == nil || !node.Updating() {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.update.status
	if status == nil || status.ID != node.Update.ID {
		return ""
	}
	switch status.Stage {
	case api.UpdateLoading:
		return fmt.Sprintf("%.0f %% of the package are there", 100*min(max(status.Progress, 0), 1))
	case api.UpdateWaiting:
		return status.Message
	case api.UpdateSwapped:
		return "the new agent begins"
	default:
		return ""
	}
}
