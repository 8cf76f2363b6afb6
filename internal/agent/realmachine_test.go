package agent

import (
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// TestRealMachine starts a real guest with every setting of its machine that an order can change,
// restarts it, saves it stopped, and starts the resulting version.
func TestRealMachine(t *testing.T) {
	fulltest.Only(t) // the same machine is in internal/hv/qemu, and TestRealSaves has a real node
	t.Parallel()
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 2)
	url, v1 := publishGuest(t, disk)
	n := bootReal(t, "a", t.TempDir(), url)
	const mac, hardware, size = "52:54:00:aa:bb:cc", "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11", 2 << 30
	n.orderStart("1", v1.ID, "v1", v1.ContentID, func(o *api.StartOrder) {
		o.Machine = &api.Machine{
			CPUs: 2, MemoryMB: 384, DiskBytes: size, MAC: mac, HardwareUUID: hardware, Serial: "C02X",
			NetworkLocal: "forceOn", VNCPassword: "first",
			USB: "pad", USBDevice: "emulated:tablet", // the controller has chosen
		}
	})
	n.reaches("1", api.PhaseRunning)
	vm := n.control.status(idA).VM
	if vm.CPUs != 2 || vm.MemoryMB != 384 || vm.MAC != mac || vm.VNCPort < 5900 || vm.UUID != idA {
		t.Errorf("told VM %+v", vm)
	}
	seen := n.run(
		"nproc; cat /sys/class/net/*/address; cat /sys/class/dmi/id/product_uuid /sys/class/dmi/id/product_serial")
	if !strings.HasPrefix(seen, "2\n") || !strings.Contains(seen, mac+"\n") ||
		!strings.HasSuffix(seen, hardware+"\nC02X\n") {
		t.Errorf("the guest sees %q", seen)
	}
	n.checkRoot(size)
	n.run("echo kept >/var/kept; echo lost >/run/lost; sync")

	password, stick := "second", "emulated:storage"
	o := restartOrder("r1")
	o.Restart.VNCPassword, o.Restart.USB = &password, &stick
	n.control.order(o)
	if got := n.untilTask("r1"); got.Stage != api.TaskDone {
		t.Fatalf("restart: %+v", got)
	}
	again := n.control.status(idA).VM
	if !again.Started.After(vm.Started) || again.Status != "running" || again.MAC != mac || again.VNCPort < 5900 {
		t.Errorf("after the restart: VM %+v", again)
	}
	if got := n.run("cat /var/kept; cat /run/lost 2>/dev/null; true"); got != "kept\n" {
		t.Errorf("after the restart: %q", got)
	}

	id := newUUID()
	n.control.order(saveOrder("s1", func(o *api.SaveOrder) {
		o.TemplateID, o.NewName, o.Suspend, o.Revert = id, "fresh", false, &api.PushRevert{Tag: "v2"}
	}))
	saved := n.untilTask("s1")
	if v := saved.Version; saved.Stage != api.TaskDone || v.ID != id || v.Name != "fresh" || v.Number != 0 {
		t.Fatalf("save: %+v, version %+v", saved, saved.Version)
	}
	n.terminate("1")
	n.start("2", id, "v2", saved.Version.ContentID)
	fresh := n.control.status(idA).VM
	if fresh.CPUs != 2 || fresh.MemoryMB != 384 || fresh.MAC == mac || fresh.VNCPort != 0 {
		t.Errorf("the new version's VM is %+v", fresh)
	}
	if got := n.run("cat /var/kept"); got != "kept\n" {
		t.Errorf("the new version has %q", got)
	}
	n.checkRoot(size)
	n.terminate("2")
}

// checkRoot checks whether the guest's root file system fills a disk of size bytes.
func (n *realNode) checkRoot(size int64) {
	n.t.Helper()
	text := strings.TrimSpace(n.run("df -P -k / | tail -n 1 | { read -r _ size _; echo $size; }"))
	kib, err := strconv.ParseInt(text, 10, 64)
	if err != nil || kib<<10 < size*9/10 {
		n.t.Errorf("the root file system has %s KiB of %d bytes, %v", text, size, err)
	}
}
