package controller

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
)

// phones returns a node with two devices of one name and one without.
func phones() *api.NodeInfo {
	return &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim", USB: []api.USBDevice{
		{Name: "phone", Location: "1-1"}, {Name: "phone", Location: "1-2"}, {Location: "1-3"},
	}}
}

// withPhones joins a node with devices.
func (c *cloud) withPhones(name string, capacity int) *agent {
	c.t.Helper()
	a := c.join(name, capacity)
	a.info = phones()
	a.contact()
	synctest.Wait()
	return a
}

func (c *cloud) startWith(device string) string {
	c.t.Helper()
	return c.mustStart(StartRequest{Options: farm.StartOptions{USBDevice: device}})[0]
}

func (c *cloud) wantUSB(want map[string]farm.USBCount) {
	c.t.Helper()
	synctest.Wait()
	if d := cmp.Diff(want, c.Nodes.USB(everyNode)); d != "" {
		c.t.Errorf("devices (-want +got):\n%s", d)
	}
}

// TestUSBDevicesAreCounted: a device is assigned to one instance as long as that uses capacity; a
// later instance waits and has the reason in its message.
func TestUSBDevicesAreCounted(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.wantUSB(map[string]farm.USBCount{})
		a := c.withPhones("one", 9)
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 2}, "1-3": {Available: 1}})
		for range 3 {
			c.startWith("phone")
		}
		id := c.startWith("1-3")
		c.wantUSB(map[string]farm.USBCount{"phone": {Busy: 2}, "1-3": {Busy: 1}})
		given := map[string]api.Order{}
		for _, o := range a.next() {
			given[o.Start.Machine.USBDevice] = o
			if (o.InstanceID == id) != (o.Start.Machine.USBDevice == "1-3") {
				t.Errorf("%s got %+v", o.InstanceID, o.Start.Machine)
			}
		}
		if len(given) != 3 {
			t.Fatalf("devices were given: %v", given)
		}
		waiting := ""
		for _, l := range c.Instances.List(instances.Page{}) {
			if l.AwaitsPlacement() {
				waiting = l.ID
				if l.Message != "no node has a free USB device phone (1 node: 1 with the USB device taken)" {
					t.Errorf("message %q", l.Message)
				}
			}
		}
		first := given["1-1"]
		a.say(first, api.PhaseRunning)
		if err := c.Instances.Terminate(t.Context(), first.InstanceID); err != nil {
			t.Fatal(err)
		}
		c.wantUSB(map[string]farm.USBCount{"phone": {Busy: 2}, "1-3": {Busy: 1}}) // as long as its VM may be there
		a.say(first, api.PhaseTerminated)
		if inst, _ := c.Instances.Get(t.Context(), waiting); inst.USBLocation != "1-1" {
			t.Errorf("the freed device did not go to the one that waited: %+v", inst.Instance)
		}
		c.restart()
		c.wantUSB(map[string]farm.USBCount{"phone": {Busy: 2}, "1-3": {Busy: 1}})
	})
}

// TestUSBDevicesComeAndGo: an unplugged device is no longer available, nor are those of a node that
// is offline.
func TestUSBDevicesComeAndGo(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.withPhones("one", 9), c.withPhones("two", 9)
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 4}, "1-3": {Available: 2}})
		id := c.startWith("1-3")
		inst, _ := c.Instances.Get(t.Context(), id)
		if inst.NodeID == b.id {
			a, b = b, a
		}
		less := phones()
		less.USB = less.USB[:1]
		a.info = less
		a.contact()
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 3}, "1-3": {Available: 1}})
		a.info = phones()
		a.contact()
		// it is still the instance's
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 4}, "1-3": {Available: 1, Busy: 1}})
		node, _ := c.Nodes.Get(t.Context(), a.id)
		if want := []farm.USBDevice{
			{Name: "phone", Location: "1-1"},
			{Name: "phone", Location: "1-2"},
			{Location: "1-3", Busy: true},
		}; !cmp.Equal(node.Info.USBDevices, want) {
			t.Errorf("the node shows %+v", node.Info.USBDevices)
		}
		off := node.Node.Clone()
		off.State = farm.NodeOffline
		c.putNode(off)
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 2}, "1-3": {Available: 1}})
	})
}

// TestUSBDevicesAreGivenOnce: restarts and starts race for few devices; none is ever assigned to
// two instances, and none is lost.
func TestUSBDevicesAreGivenOnce(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		second := c.replica()
		defer second.stop()
		a := c.withPhones("one", 30)
		plain := c.mustStart(StartRequest{Count: 6})
		for _, o := range a.next() {
			a.say(o, api.PhaseRunning)
		}
		device := "phone"
		var wg sync.WaitGroup
		for i, id := range plain {
			from := []*Controller{c.Controller, second.Controller}[i%2]
			wg.Go(func() {
				err := from.Instances.Restart(t.Context(), id, farm.RestartOptions{USBDevice: &device})
				if err != nil && !strings.HasPrefix(err.Error(),
					"usb_device phone cannot be attached: all such devices of node one are in use") {
					t.Error(err)
				}
			})
			wg.Go(func() {
				_, err := from.Start(t.Context(),
					StartRequest{
						TemplateID: templateID, Count: 1, Options: farm.StartOptions{USBDevice: device, Priority: 1},
					})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		holders := map[string]string{}
		for id, inst := range c.tables.Instances.All() {
			for _, location := range []string{inst.USBLocation, next(inst)} {
				if other := holders[location]; location != "" && other != "" {
					t.Errorf("%s and %s have %s", id, other, location)
				}
				holders[location] = id
			}
		}
		if holders["1-1"] == "" || holders["1-2"] == "" {
			t.Errorf("not all were given: %v", holders)
		}
	})
}

func next(i *farm.Instance) string {
	if i.Task == nil || i.Task.Restart == nil {
		return ""
	}
	return i.Task.Restart.Device
}

// TestDeviceOfARestart: a restart changes the device when it succeeds, and keeps the old one when
// it fails.
func TestDeviceOfARestart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.withPhones("one", 9)
		id := c.startWith("phone")
		o := a.take(api.OrderStart)
		a.say(o, api.PhaseRunning)
		key := "1-3"
		for _, tt := range []struct {
			stage api.TaskStage
			want  string
		}{{api.TaskFailed, "1-1"}, {api.TaskDone, "1-3"}} {
			if err := c.Instances.Restart(t.Context(), id, farm.RestartOptions{USBDevice: &key}); err != nil {
				t.Fatal(err)
			}
			c.wantUSB(map[string]farm.USBCount{"phone": {Available: 1, Busy: 1}, "1-3": {Busy: 1}})
			r := a.take(api.OrderRestart)
			if r.Restart.USB == nil || *r.Restart.USB != "1-3" {
				t.Errorf("order %+v", r.Restart)
			}
			a.say(o, api.PhaseRunning, at(r, tt.stage))
			if inst, _ := c.Instances.Get(t.Context(), id); inst.USBLocation != tt.want {
				t.Errorf("after %s it has %s, want %s", tt.stage, inst.USBLocation, tt.want)
			}
		}
		c.wantUSB(map[string]farm.USBCount{"phone": {Available: 2}, "1-3": {Busy: 1}})
		other := c.startWith("phone")
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		if err := c.Instances.Restart(t.Context(), other, farm.RestartOptions{USBDevice: &key}); err == nil ||
			err.Error() !=
				"usb_device 1-3 cannot be attached: all such devices of node one are in use; try again when one is "+
					"free" {
			t.Errorf("a device that another one has: %v", err)
		}
	})
}
