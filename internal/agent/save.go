package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	saveScriptTimeout = 6 * time.Hour
	saveTimeout       = 2 * time.Hour // of the driver's part

	scriptFailedMessage = "Script execution failed"
)

// beginSave checks whether the save is possible before anything is done.
func (a *Agent) beginSave(ctx context.Context, in *instance, _ hv.VM) error {
	t := in.snapshot().Task
	if err := a.awaitDescription(ctx, in); err != nil {
		return a.failUnlessEnding(ctx, in, "The VM could not be saved: %v", err)
	}
	if problem := a.saveObstacle(in, t.Order.Save); problem != "" {
		return a.failTask(ctx, in, "%s", problem)
	}
	next := api.TaskSaving
	if len(t.Order.Save.Script) > 0 {
		next = api.TaskScript
	}
	return a.changeTask(ctx, in, func(t *journal.Task) { t.Stage = next })
}

// suspendObstacle returns a sentence when a host cannot save a VM while it runs; "" when it can. One of two
// drivers of a host may be able to, so that the abilities alone do not tell.
func suspendObstacle(h hv.Host, s hv.Spec) string {
	switch {
	case s.Apple != nil:
		return fmt.Sprintf(string(hv.RefusalSuspend), "This node")
	case !h.HasCapability(hv.CanSuspend):
		return fmt.Sprintf(string(hv.RefusalSuspendPC), h.Driver)
	}
	return ""
}

// saveObstacle returns a sentence when this node cannot do a save; "" when it can.
func (a *Agent) saveObstacle(in *instance, o *api.SaveOrder) string {
	if _, able := a.opts.Driver.(hv.Saver); !able || !a.host.HasCapability(hv.CanSave) {
		return fmt.Sprintf("This node's hypervisor (%s) cannot save VMs", a.host.Driver)
	}
	if a.opts.Registries == nil || a.opts.SaveDir == "" {
		return "This node has no registry to push to"
	}
	if _, err := a.opts.Templates.Version(in.order.Start.ContentID); err != nil {
		return "The version that the VM was started from is no longer on its node: " +
			firstBytes(err.Error(), maxMessageBytes)
	}
	spec, err := a.vmSpec(in)
	if err != nil {
		return firstBytes(err.Error(), maxMessageBytes)
	}
	if o.Suspend {
		if problem := suspendObstacle(a.host, spec); problem != "" {
			return problem
		}
	}
	if o.SanityTest && o.Suspend && spec.Network == hv.NetworkBridge {
		return "The sanity test starts a copy of the VM, which would have the VM's own address on the bridge; save " +
			"without it"
	}
	return ""
}

// saveScript runs the save's script once, by the same rules as a startup script.
func (a *Agent) saveScript(ctx context.Context, in *instance, _ hv.VM) error {
	t := in.snapshot().Task
	if t.ScriptBegun {
		return a.failTask(ctx, in, "The outcome of the script is unknown after an agent restart; it is not run twice")
	}
	dir := a.saveDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a.failTask(ctx, in, "Not enough disk space on the node for the save: %v", err)
	}
	cmd := hv.ScriptCommand(t.Order.Save.Script, saveScriptTimeout)
	if err := a.changeTask(ctx, in, func(t *journal.Task) { t.ScriptBegun = true }); err != nil {
		return err
	}
	o, err := a.executeScript(ctx, in, cmd, nil)
	if err != nil {
		return err
	}
	said := scriptStatus(o, hv.MaxOutputBytes)
	said.Stdout, said.Stderr = shortenOutput(said.Stdout), shortenOutput(said.Stderr)
	a.log.Info("script before a save ended", "instance_id", in.id, "code", said.Code, "timed_out", said.TimedOut)
	if err := writeOutput(dir, said); err != nil {
		a.log.Warn("storing the output of a script failed; it is lost if the agent stops", "instance_id", in.id,
			"error", err)
	}
	in.mu.Lock()
	in.taskReport.scriptOutput = said
	in.mu.Unlock()
	return a.changeTask(ctx, in, func(t *journal.Task) {
		bare := *said
		bare.Stdout, bare.Stderr = "", ""
		t.Script = &bare
		if scriptFailed(said) && t.Order.Save.MustSucceed {
			t.Failure = &journal.TaskFailure{Message: scriptFailedMessage, Code: said.Code}
			return
		}
		t.Stage = api.TaskSaving
	})
}

// saveFiles has the driver export the VM. It repeats what an earlier attempt left.
func (a *Agent) saveFiles(ctx context.Context, in *instance, vm hv.VM) error {
	t := in.snapshot().Task
	order := t.Order.Save
	dir := a.saveFilesDir(t)
	if err := os.RemoveAll(dir); err != nil {
		return a.failTask(ctx, in, "The place for the save cannot be cleared: %v", err)
	}
	if problem := a.lacksSpace(ctx, in, vm, order.Suspend); problem != "" {
		return a.failTask(ctx, in, "%s", problem)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a.failTask(ctx, in, "Not enough disk space on the node for the save: %v", err)
	}
	if err := a.awaitFiles(ctx, in); err != nil {
		return a.failUnlessEnding(ctx, in, "The VM could not be saved: %v", err)
	}
	if !order.Suspend && vm.Status != hv.Running { // shut down by an attempt that was interrupted
		if _, err := a.restartFromDisk(ctx, in, vm); err != nil {
			return a.failUnlessEnding(ctx, in, "The VM does not start again to be saved: %v", err)
		}
	}
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, saveTimeout)
	defer cancel()
	begun := time.Now()
	saved, err := a.opts.Driver.(hv.Saver).Save(limited, in.id, hv.SaveSpec{Dir: dir, Suspend: order.Suspend})
	if err != nil {
		return a.failUnlessEnding(ctx, in, "The VM could not be saved: %v", err)
	}
	a.log.Info("VM saved", "instance_id", in.id, "suspended", order.Suspend, "took", time.Since(begun), "pause",
		saved.PausedFor)
	return a.changeTask(ctx, in, func(t *journal.Task) {
		t.Saved, t.Stage = &saved, api.TaskPushing
		if order.SanityTest && order.Suspend {
			t.Stage = api.TaskTesting
		}
	})
}

// failUnlessEnding fails the task with an error, unless the end of the instance or of the agent caused it.
func (a *Agent) failUnlessEnding(ctx context.Context, in *instance, format string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case in.ending.Err() != nil:
		return errEnding
	default:
		return a.failTask(ctx, in, format, err)
	}
}

// lacksSpace returns a sentence when the disk may be too small for the save, even after the eviction of
// unused cached templates.
func (a *Agent) lacksSpace(ctx context.Context, in *instance, vm hv.VM, suspend bool) string {
	need := a.opts.Machine.VMBytes(in.id)
	if suspend {
		need += int64(vm.MemoryMB) * bytesize.MB
	}
	free, _, _ := a.opts.Machine.Disk()
	if free >= need {
		return ""
	}
	if err := a.opts.Templates.EnsureFreeSpace(ctx, need); err != nil {
		a.log.Warn("freeing space for a save failed", "instance_id", in.id, "error", err)
	}
	if free, _, _ = a.opts.Machine.Disk(); free >= need {
		return ""
	}
	return fmt.Sprintf("The node's disk has %s free and the save may take %s; remove VMs or templates from the node",
		bytesize.Format(free), bytesize.Format(need))
}

const (
	roleTestVM   = "check" // value of labelRole
	testVMSuffix = "-check"
)

// isTestVM reports whether a VM is that of a sanity test.
func isTestVM(vm hv.VM) bool { return vm.Labels[labelRole] == roleTestVM }

// testSave starts a second VM from the save and has it run a program.
func (a *Agent) testSave(ctx context.Context, in *instance, _ hv.VM) error {
	t := in.snapshot().Task
	if err := a.removeTestVM(ctx, in, t); err != nil {
		return err
	}
	err := a.runTestVM(ctx, in, t)
	if gone := a.removeTestVM(ctx, in, t); gone != nil && err == nil {
		err = gone
	}
	if err != nil {
		return a.failUnlessEnding(ctx,
			in, "The sanity test failed: a VM that was started from the save did not work: %v",
			err)
	}
	return a.changeTask(ctx, in, func(t *journal.Task) { t.Stage = api.TaskPushing })
}

func (a *Agent) runTestVM(ctx context.Context, in *instance, t *journal.Task) error {
	spec, err := a.testVMSpec(in, t)
	if err != nil {
		return err
	}
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, spec.BootTimeout+startTimeoutMargin)
	defer cancel()
	if _, err := a.opts.Driver.Start(limited, spec); err != nil {
		return err
	}
	return a.checkGuestResponds(ctx, in, spec.ID)
}

// testVMSpec returns the VM of a sanity test. It equals the saved one in all that its state needs,
// and has no network connection in either direction.
func (a *Agent) testVMSpec(in *instance, t *journal.Task) (hv.Spec, error) {
	s, err := a.vmSpec(in)
	if err != nil {
		return s, err
	}
	if len(s.Disks) != len(t.Saved.Disks) {
		return s, fmt.Errorf("the saved state has %d disks instead of %d", len(t.Saved.Disks), len(s.Disks))
	}
	for i, d := range t.Saved.Disks {
		s.Disks[i].Deltas = append(slices.Clone(s.Disks[i].Deltas), d.Path)
	}
	s.ID, s.Name, s.UUID = in.id+testVMSuffix, in.id+testVMSuffix, newUUID()
	s.State = &hv.State{Path: t.Saved.State, Requirements: t.Saved.Requirements}
	s.CPUs, s.MemoryMB, s.DiskBytes = t.Saved.Requirements.CPUs, t.Saved.Requirements.MemoryMB, 0
	s.MAC, s.Ports, s.VNC, s.NeedNetwork, s.Isolated = "", nil, nil, false, true
	pc := s.EditPC()
	pc.HardwareUUID, pc.Serial, pc.USB = "", "", nil
	s.Labels = map[string]string{
		labelInstance: in.id, labelClaim: in.order.Claim, labelNode: a.opts.Identity.NodeID, labelRole: roleTestVM,
	}
	return s, nil
}

// removeTestVM removes the VM of a sanity test, if there may be one.
func (a *Agent) removeTestVM(ctx context.Context, in *instance, t *journal.Task) error {
	if t.Order.Kind != api.OrderSave || !t.Order.Save.SanityTest {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	return a.opts.Driver.Delete(limited, in.id+testVMSuffix)
}

// newUUID makes a random one.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
