package agent

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// isForeign reports whether something carries another identity than this node's. What
// carries none is from a program that did not say.
func (a *Agent) isForeign(node string) bool {
	return node != "" && node != a.opts.Identity.NodeID
}

// removeForeign makes an entry of another identity one that only goes, unreported: its
// cloud has no record of it any more. It is called before the worker runs.
func (a *Agent) removeForeign(in *instance, node string) {
	if !a.isForeign(node) {
		return
	}
	a.log.Warn("an instance of an earlier identity of this node goes", "instance", in.id, "identity", node)
	in.alien = true
	in.state.Ending, in.state.Silent = true, true
	in.kill()
}

// removeOrphans removes every VM that has no instance and that which is asked for, silently.
// The VM of a sanity test is removed by its instance when that is here.
func (a *Agent) removeOrphans(ctx context.Context, which func(hv.VM) bool) {
	var list []*instance
	a.mu.Lock()
	for _, vm := range a.vms {
		owned := a.instances[vm.ID] != nil || isCheck(vm) && a.instances[vm.Labels[labelInstance]] != nil
		if owned || !which(vm) || journal.CheckID(vm.ID) != nil {
			continue
		}
		o := api.Order{Kind: api.OrderTerminate, InstanceID: vm.ID}
		in := newInstance(a.entry(o, journal.Tombstone(o)))
		in.alien, in.state.Silent = true, true
		a.instances[vm.ID] = in
		list = append(list, in)
	}
	a.mu.Unlock()
	for _, in := range list {
		a.log.Warn("a VM that is not this node's goes", "instance", in.id)
		a.employ(ctx, in)
	}
}

// leave ends everything that this node holds, since an operator removed it from its
// cloud. It is the poll loop's last act, so no new order comes beside it.
func (a *Agent) leave(ctx context.Context) error {
	a.log.Warn("this node was removed from its cloud; its VMs go")
	a.errands.DropAll()
	var pause backoff
	for err := a.look(ctx); err != nil && ctx.Err() == nil; err = a.look(ctx) {
		a.log.Warn("VMs cannot be listed", "error", err)
		pause.sleep(ctx)
	}
	a.mu.Lock()
	list := make([]*instance, 0, len(a.instances))
	for _, in := range a.instances {
		list = append(list, in)
	}
	a.mu.Unlock()
	for _, in := range list {
		if err := a.end(in, "", true); err != nil {
			a.log.Warn("the end of an instance is not durable", "instance", in.id, "error", err)
		}
	}
	a.removeOrphans(ctx, func(hv.VM) bool { return true })
	a.workers.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return farm.Refused("This node was removed from its cloud; its VMs were removed. Join again with: buildnode join")
}
