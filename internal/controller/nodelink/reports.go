package nodelink

import (
	"context"
	"errors"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Report processes the statuses that a node reports of its instances.
func (l *Link) Report(ctx context.Context, credential string, req api.Report) (api.ReportAnswer, error) {
	var answer api.ReportAnswer
	node, err := l.Authenticate(req.NodeID, credential)
	if errors.Is(err, ErrRemoved) {
		return answer, nil // its next poll reports that; none of this counts any longer
	}
	if err != nil {
		return answer, err
	}
	if err := nodeinput.Report(&req); err != nil {
		return answer, err
	}
	s := l.Sessions.session(node.ID)
	if s == nil { // removed a moment ago
		return answer, nil
	}
	if err := s.checkAgent(req.BootID, l.db.Now()); err != nil {
		return answer, err
	}
	if node.HostFixed {
		setHost(node.Host, req.Statuses)
	}
	statuses, err := l.placedHere(ctx, node.ID, req.Statuses)
	if err != nil {
		return answer, err
	}
	if err := l.applyStatuses(ctx, s, statuses); err != nil || len(req.CacheJobs) == 0 {
		return answer, err
	}
	return answer, l.applyCacheJobs(ctx, s, req.CacheJobs)
}

// setHost sets the address that an operator has configured in place of the node's own.
func setHost(host string, statuses []api.InstanceStatus) {
	for _, status := range statuses {
		if status.VM != nil {
			status.VM.HostIP = host
		}
	}
}

// placedHere returns the last status of each instance that is placed on the node under the claim of
// the status. The others are ignored: an orphaned VM is handled when the node sends its inventory.
// However many there are, they cost one read of the store.
func (l *Link) placedHere(
	ctx context.Context, node string, statuses []api.InstanceStatus,
) ([]api.InstanceStatus, error) {
	elsewhere := func(s api.InstanceStatus) bool {
		inst, _, ok := l.db.Tables.Instances.Get(s.InstanceID)
		return !ok || inst.NodeID != node || inst.Claim != s.Claim
	}
	statuses = lastOfEach(statuses)
	if !slices.ContainsFunc(statuses, elsewhere) {
		return statuses, nil
	}
	if err := l.db.UpToDate(ctx); err != nil { // another replica may have placed one a moment ago
		return nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	return slices.DeleteFunc(statuses, elsewhere), nil
}

// applyStatuses writes the changes of statuses. If they only describe, and the node has described
// too often, they are written later.
func (l *Link) applyStatuses(ctx context.Context, s *session, statuses []api.InstanceStatus) error {
	moves, describes := false, map[string]api.InstanceStatus{}
	for _, status := range statuses {
		switch l.opts.Instances.ChangeOf(status) {
		case record.Transition:
			moves = true
		case record.Description:
			describes[status.InstanceID] = status
		}
	}
	if !moves && len(describes) == 0 {
		return nil
	}
	if !moves && !l.allowWrite(ctx, s, func(w *pacedWrites) { w.addStatuses(describes) }) {
		return nil
	}
	late := s.takeStatuses() // which the node considers accepted
	err := l.opts.Instances.Apply(ctx, s.node, lastOfEach(slices.Concat(late, statuses)))
	if err != nil {
		l.restoreStatuses(ctx, s, late)
	}
	return err
}

// lastOfEach keeps the last status of every instance: a status is complete.
func lastOfEach(statuses []api.InstanceStatus) []api.InstanceStatus {
	seen := map[string]bool{}
	var last []api.InstanceStatus
	for _, status := range slices.Backward(statuses) {
		if record.ValidID(status.InstanceID) && !seen[status.InstanceID] {
			last = append(last, status)
		}
		seen[status.InstanceID] = true
	}
	return last
}
