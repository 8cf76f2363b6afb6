package agent

import (
	"errors"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestGrow: a guest with a larger disk is asked to use it before its script runs, unless the user
// does that; a guest that cannot fails its start.
func TestGrow(t *testing.T) {
	for name, tt := range map[string]struct {
		machine *api.Machine
		broken  error
		grown   int
		message string
	}{
		"no machine":  {},
		"other disk":  {machine: &api.Machine{CPUs: 1}},
		"larger":      {machine: &api.Machine{DiskBytes: 8 << 30}, grown: 1},
		"by the user": {machine: &api.Machine{DiskBytes: 8 << 30, KeepFileSys: true}},
		"cannot": {
			machine: &api.Machine{DiskBytes: 8 << 30}, broken: errors.New("no resize2fs"), grown: 1,
			message: "start VM: the VM has a disk of 8 GiB, but the guest does not use all of it: no resize2fs. " +
				"Set skip_container_resize to start the VM anyway",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.breaks("grow", tt.broken)
				w.control.order(startOrder(func(o *api.StartOrder) {
					o.Machine, o.Script = tt.machine, &api.Script{Text: []byte("exit 0")}
				}))
				phase := api.PhaseScriptOK
				if tt.message != "" {
					phase = api.PhaseFailed
				}
				w.until(phase)
				if s := w.control.status(idA); s.Message != tt.message || w.number(&w.grown) != tt.grown {
					t.Errorf("got %q, asked %d times", s.Message, w.number(&w.grown))
				}
				if tt.message != "" && (len(w.vms()) != 0 || w.number(&w.scripts) != 0) {
					t.Errorf("VMs %+v, %d scripts", w.vms(), w.number(&w.scripts))
				}
			})
		})
	}
}
