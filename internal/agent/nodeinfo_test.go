package agent

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/usb"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// A node immediately reports which devices are claimed, and which networks it has.
func TestOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{VLANs: []int{10, 20}})
		claims := usb.At(filepath.Join(t.TempDir(), "usb.json"))
		w.devices = usb.NewAvailableDevices(claims, filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler))
		stop := w.boot(newGate(-1))
		synctest.Wait()
		before := w.agent.nodeInfo()
		if len(before.USB) != 0 || !slices.Equal(before.VLANs, []int{10, 20}) ||
			!slices.Contains(before.Abilities, farm.AbilityBridge) {
			t.Errorf("offered: %+v", before)
		}
		if _, err := claims.Add("emulated:tablet", "pad"); err != nil {
			t.Fatal(err)
		}
		after := w.agent.nodeInfo()
		if d := cmp.Diff([]api.USBDevice{{Name: "pad", Location: "emulated:tablet"}}, after.USB); d != "" ||
			contentHash(before) == contentHash(after) {
			t.Errorf("devices (-want +got):\n%s", d)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// troubledDriver is a driver whose host starts no guests.
type troubledDriver struct{ hv.Driver }

func (troubledDriver) Problem() string { return "restart it" }

func (troubledDriver) OtherMacOSGuests() int { return 1 }

// TestProblemIsReported: the problem of a driver is in the description of the node.
func TestProblemIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		stop := w.boot(newGate(-1))
		synctest.Wait()
		if p := w.agent.nodeInfo().Problem; p != "" {
			t.Errorf("problem %q", p)
		}
		o := w.agent.opts
		o.Driver = troubledDriver{o.Driver}
		a := New(o)
		a.listedVMs = []hv.VM{{ID: "orphan", Status: hv.Running, MacOS: true}, {ID: "stopped", MacOS: true}}
		if info := a.nodeInfo(); info.Problem != "restart it" || info.OtherMacOS != 2 {
			t.Errorf("problem %q, %d other guests", info.Problem, info.OtherMacOS)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
