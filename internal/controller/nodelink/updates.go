package nodelink

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// updateReportTime is how long an agent may report nothing of an update that it received.
const updateReportTime = time.Minute

// reportedUpdate is the update that this replica has sent to a node, and the node's last status.
type reportedUpdate struct {
	fresh  bool      // there is one that may not have been sent yet
	id     string    // of the one that was sent
	at     time.Time // when it was sent to the present agent
	status *api.UpdateStatus
}

// followUpdate wakes the poll of a node that has a new update.
func (n *Sessions) followUpdate(old, now *farm.Node) {
	if !now.IsUpdateRunning() || old != nil && old.Update == now.Update {
		return
	}
	s := n.session(now.ID)
	if s == nil {
		return
	}
	s.mu.Lock()
	fresh := s.update.id != now.Update.ID
	s.update.fresh = s.update.fresh || fresh
	s.mu.Unlock()
	if fresh {
		s.signal()
	}
}

// hasUpdate reports whether there is an update that the node has not received yet.
func (s *session) hasUpdate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update.fresh
}

// updateOffer returns the update for the node; nil for none.
func (l *Link) updateOffer(s *session) *api.AgentUpdate {
	node, _, ok := l.db.Tables.Nodes.Get(s.node)
	if !ok || !node.IsUpdateRunning() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.update = reportedUpdate{}
		return nil
	}
	u := node.Update
	p, ok := l.opts.PackageFor(l.db.Tables.NodeInfo(node.ID))
	if !ok || p.SHA256 != u.SHA256 {
		return nil // the package was removed; the leader ends the update
	}
	now := l.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update.fresh = false
	if s.update.id != u.ID {
		s.update.id, s.update.at, s.update.status = u.ID, now, nil
	}
	return &api.AgentUpdate{ID: u.ID, Package: p, Force: u.Force, Keys: l.opts.UpdateKeys()}
}

// applyUpdateStatus processes a node's report of its update: its agent has the new version, the
// update failed, or its stage. An agent that received an update and reports nothing does not support
// updates.
func (l *Link) applyUpdateStatus(ctx context.Context, s *session, node *farm.Node, req *api.PollRequest) error {
	if !node.IsUpdateRunning() {
		return nil
	}
	id := node.Update.ID
	done, failure := l.db.Tables.NodeInfo(node.ID).AgentVersion == node.Update.Version, ""
	now := l.db.Now()
	s.mu.Lock()
	if req.Update != nil && req.Update.ID == id {
		s.update.status = req.Update
	}
	status := s.update.status
	unsupported := status == nil && s.update.id == id && now.Sub(s.update.at) >= updateReportTime
	s.mu.Unlock()
	switch {
	case done:
	case status != nil && status.Stage == api.UpdateFailed:
		failure = cmp.Or(status.Message, "the agent reports no reason")
	case unsupported:
		failure = "its agent does not support updates; install " + node.Update.Version + " on the node by hand"
	default:
		return nil
	}
	_, err := store.Update(ctx, l.db.Store, l.db.Tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil || !n.IsUpdateRunning() || n.Update.ID != id {
			return n, nil
		}
		n = n.Clone()
		n.EndUpdateTry(failure, l.db.Now())
		return n, nil
	})
	if err != nil {
		return err
	}
	if done {
		l.db.Log.InfoContext(ctx, "agent of a node updated", "node_id", node.ID, "name", node.Name, "version",
			node.Update.Version)
	} else {
		l.db.Log.WarnContext(ctx, "agent update of a node failed", "node_id", node.ID, "name", node.Name,
			"version", node.Update.Version, "error", failure)
	}
	return nil
}

// UpdateStage returns the stage of a node's update in words; "" when that is not known.
func (n *Sessions) UpdateStage(node *farm.Node) string {
	s := n.find(node.ID)
	if s == nil || !node.IsUpdateRunning() {
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
		return fmt.Sprintf("%.0f %% of the package is downloaded", 100*min(max(status.Progress, 0), 1))
	case api.UpdateWaiting:
		return status.Message
	case api.UpdateSwapped:
		return "the new agent is starting"
	default:
		return ""
	}
}
