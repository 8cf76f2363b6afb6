package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// described asks the agent about IDs and returns the details in its next poll.
func (w *world) described(ids ...string) []api.InventoryDetail {
	w.t.Helper()
	w.control.mu.Lock()
	before := len(w.control.polls)
	w.control.asks = ids
	w.control.ringLocked()
	w.control.mu.Unlock()
	time.Sleep(15 * time.Second)
	var details []api.InventoryDetail
	for _, p := range w.control.seen()[before:] {
		if len(p.Details) > 0 && len(details) > 0 {
			w.t.Error("told twice")
		}
		details = append(details, p.Details...)
	}
	return details
}

// TestDetails: a node reports all details of an instance except the secrets.
func TestDetails(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		o := startOrder(withScript(api.Script{Text: []byte("echo secret"), Monitoring: true, OnFailure: 1, Timeout: 9}))
		o.Start.Machine = &api.Machine{CPUs: 3, VNCPassword: "secret"}
		w.control.order(o)
		w.until(api.PhaseScriptOK)
		told := w.control.status(idA)
		list := w.described(idA, "of nothing")
		if len(list) != 1 {
			t.Fatalf("told %+v", list)
		}
		d := list[0]
		if d.ID != idA || d.Ending || d.ContentID != content || d.Status.Claim != "1" || d.Status.Phase != told.Phase ||
			d.Status.No != told.No {
			t.Errorf("told %+v", d)
		}
		if d.Status.VM == nil || d.Status.VM.UUID != idA || d.Status.Script == nil || d.Status.Script.Stdout != "" {
			t.Errorf("status %+v", d.Status)
		}
		s := d.Start
		if s.TemplateID != "t" || s.Tag != "v1" || s.Machine.CPUs != 3 || s.Machine.VNCPassword != "" ||
			len(s.Script.Text) > 0 || !s.Script.Monitoring || s.Script.OnFailure != 1 {
			t.Errorf("start %+v %+v %+v", s, s.Script, s.Machine)
		}
		if w.entry().Order.Start.Machine.VNCPassword == "" || len(w.entry().Order.Start.Script.Text) == 0 {
			t.Error("the order itself lost its secrets")
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
	})
}

// TestDetailsOfAnOrphan: for a VM without a journal entry, the details come from its labels and the
// driver.
func TestDetailsOfAnOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const alien = "99999999-2222-4333-8444-555555555555"
		w := newWorld(t, sim.Options{})
		for id, labels := range map[string]map[string]string{
			idA:   {labelInstance: idA, labelClaim: "old", labelContent: content},
			alien: {labelInstance: alien, labelClaim: "old", labelNode: "another"},
		} {
			_, err := w.host.Start(t.Context(), hv.Spec{
				ID: id, UUID: id, CPUs: 1, MemoryMB: 512, Disks: []hv.Disk{{Path: "/x", Format: "raw"}}, Labels: labels,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		stop := w.boot(newGate(-1))
		time.Sleep(time.Second)
		list := w.described(idA, alien)
		if len(list) != 1 || list[0].ContentID != content || list[0].Start != nil || list[0].Status.Claim != "old" ||
			list[0].Status.Phase != api.PhaseRunning || list[0].Status.VM.MemoryMB != 512 {
			t.Errorf("told %+v", list)
		}
		w.control.order(terminate(""))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
	})
}
