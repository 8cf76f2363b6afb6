package controllerrest

import (
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/rest"
)

// defaultBatchPercent is the share of the nodes that update at a time unless a request sets another one.
const defaultBatchPercent = 10

// rollout returns the last rollout with the nodes that the caller may see.
func (s *server) rollout(r *rest.Request) (any, error) {
	out, err := s.controller.Updates.Rollout(r.Context())
	if err != nil {
		return nil, err
	}
	sees := s.visibilityOf(r).seesNode
	out.Nodes = slices.DeleteFunc(out.Nodes, func(n api.RolloutNode) bool { return !sees(n.NodeID) })
	return out, nil
}

// startRollout starts a rollout to all nodes: the caller must have the right to update each.
func (s *server) startRollout(r *rest.Request) (any, error) {
	p := r.Params
	req := agentupdate.RolloutRequest{
		CanaryGroups: p.Strings("canary_groups"), CanaryWait: p.Duration("canary_wait", agentupdate.MaxCanaryWait),
		BatchPercent: p.Int("batch_percent", 0, 1, 100), BatchNodes: p.Int("batch_nodes", 0, 1, agentupdate.MaxBatch),
		MaxFailures: p.Int("max_failures", 0, 0, agentupdate.MaxFailures), By: rest.ActorOf(r.Context()).User,
	}
	if req.BatchPercent > 0 && req.BatchNodes > 0 {
		p.RecordError("batch_nodes", "excludes batch_percent")
	}
	if req.BatchPercent == 0 && req.BatchNodes == 0 {
		req.BatchPercent = defaultBatchPercent
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := s.mayUpdateAll(r); err != nil {
		return nil, err
	}
	return s.controller.Updates.StartRollout(r.Context(), req)
}

func (s *server) changeRollout(r *rest.Request) (any, error) {
	r.Params.Required("action")
	action := agentupdate.RolloutAction(r.Params.OneOf("action", string(agentupdate.PauseRollout),
		string(agentupdate.ResumeRollout), string(agentupdate.AbortRollout)))
	reason := r.Params.Text("reason", agentupdate.MaxReason)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := s.mayUpdateAll(r); err != nil {
		return nil, err
	}
	return s.controller.Updates.ChangeRollout(r.Context(), action, reason)
}

// mayUpdateAll refuses a caller who lacks the right to update one of the nodes.
func (s *server) mayUpdateAll(r *rest.Request) error {
	may := nodeRightChecker(r, "", rightUpdate)
	if may == nil {
		return nil
	}
	for n := range s.controller.Nodes.Views() {
		if err := may(n.Node.ID); err != nil {
			return err
		}
	}
	return nil
}
