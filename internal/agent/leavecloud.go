package agent

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
)

// isForeign reports whether an identity is not this node's. An empty one is from an earlier version
// that did not record it.
func (a *Agent) isForeign(node string) bool {
	return node != "" && node != a.opts.Identity.NodeID
}

// removeForeign marks an entry of another identity for removal without a report: its cloud no
// longer has a record of it. It is called before the worker runs.
func (a *Agent) removeForeign(in *instance, node string) {
	if !a.isForeign(node) {
		return
	}
	a.log.Warn("removing an instance of an earlier identity of this node", "instance_id", in.id, "identity", node)
	in.foreign = true
	in.state.Ending, in.state.Silent = true, true
	in.cancelEnding()
}

// removeOrphans removes, without a report, every VM without an instance that which selects. The VM
// of a sanity test is removed by its instance when that is on this node.
func (a *Agent) removeOrphans(ctx context.Context, which func(hv.VM) bool) {
	var list []*instance
	a.mu.Lock()
	for _, vm := range a.listedVMs {
		owned := a.instances[vm.ID] != nil || isTestVM(vm) && a.instances[vm.Labels[labelInstance]] != nil
		if owned || !which(vm) || journal.CheckID(vm.ID) != nil {
			continue
		}
		o := api.Order{Kind: api.OrderTerminate, InstanceID: vm.ID}
		in := newInstance(a.journalEntry(o, journal.RemovalState(o)))
		in.foreign, in.state.Silent = true, true
		a.instances[vm.ID] = in
		list = append(list, in)
	}
	a.mu.Unlock()
	for _, in := range list {
		a.log.Warn("removing a VM of an earlier identity of this node", "instance_id", in.id)
		a.startWorker(ctx, in)
	}
}

// leaveCloud removes all VMs of this node, since an operator removed the node from its cloud. It is the
// poll loop's last step, so no new order can arrive concurrently.
func (a *Agent) leaveCloud(ctx context.Context) error {
	a.log.Warn("node removed from its cloud; deleting its VMs")
	a.cacheJobs.DropAll()
	pause := retry.New(retryFirst, retryMax)
	for err := a.compareVMs(ctx); err != nil && ctx.Err() == nil; err = a.compareVMs(ctx) {
		a.log.Warn("listing VMs failed; trying again before the VMs of this node are deleted", "error", err)
		_ = pause.Sleep(ctx)
	}
	a.mu.Lock()
	list := make([]*instance, 0, len(a.instances))
	for _, in := range a.instances {
		list = append(list, in)
	}
	a.mu.Unlock()
	for _, in := range list {
		if err := a.orderTermination(in, "", true); err != nil {
			a.log.Warn("writing a termination to the journal failed", "instance_id", in.id, "error", err)
		}
	}
	a.removeOrphans(ctx, func(hv.VM) bool { return true })
	a.workers.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return farm.Refused(
		"This node was removed from its cloud, and its VMs were deleted. Join again with: buildnode join")
}
