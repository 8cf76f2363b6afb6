package sched

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// phones is a node with two devices of one name and one of another.
func phones() Node {
	return machine("a", 9, func(n *Node) {
		n.USBDevices = []farm.USBDevice{
			{Name: "phone", Location: "1-1"},
			{Name: "phone", Location: "1-2"},
			{Name: "key", Location: "1-3"},
		}
	})
}

// device is an instance on the node with a device.
func device(id, want, location string) Instance {
	return on("a", ask(id, 0, func(r *Request) { r.USB, r.USBLocation = want, location }))
}

// busy returns the locations that are taken.
func busy(x *Index) (list string) {
	for _, d := range x.NodeDevices("a") {
		if d.Busy {
			list += d.Location + " "
		}
	}
	return list
}

// An instance keeps the very device that it was given, whatever others ask for.
func TestDevicesStayWhereTheyWereGiven(t *testing.T) {
	x := indexOf([]Node{phones()}, nil)
	x.SetInstance(device("r1", "phone", "1-2"))
	if got := busy(x); got != "1-2 " {
		t.Errorf("busy: %s", got)
	}
	x.SetInstance(waiting(ask("r2", 1, func(r *Request) { r.USB = "1-2" })))
	wantPairs(t, x)
	x.SetInstance(waiting(ask("r3", 1, func(r *Request) { r.USB = "phone" })))
	if got := x.Place(noon, 9); len(got) != 1 || got[0].RequestID != "r3" || got[0].USBLocation != "1-1" {
		t.Fatalf("placed %+v", got)
	}
	// A change of the waiting record while its placement is being written does not move the device.
	x.RemoveInstance("r1")
	x.SetInstance(waiting(ask("r3", 1, func(r *Request) { r.USB, r.Priority = "phone", 7 })))
	if got := busy(x); got != "1-1 " {
		t.Errorf("busy: %s", got)
	}
}

// A record of before has no location: it counts as one of its name.
func TestDevicesOfOlderRecords(t *testing.T) {
	x := indexOf([]Node{phones()}, nil)
	for _, c := range []struct{ wants, busy string }{
		{"phone", "1-1 "},
		{"1-2", "1-2 "},
		{"key", "1-3 "},
		{"lamp", ""},
		{"phone 1-1", "1-1 1-2 "},
		{"phone phone phone", "1-1 1-2 "},
	} {
		wants := strings.Fields(c.wants)
		for i, want := range wants {
			x.SetInstance(device(fmt.Sprint("r", i), want, ""))
		}
		if got := busy(x); got != c.busy {
			t.Errorf("%s: busy are %s", c.wants, got)
		}
		for i := range wants {
			x.RemoveInstance(fmt.Sprint("r", i))
		}
	}
	if got := busy(x); got != "" {
		t.Errorf("busy for nobody: %s", got)
	}
}

// A restart holds the device that the instance has and the one that it is to have.
func TestDeviceOfARestart(t *testing.T) {
	x := indexOf([]Node{phones()}, nil)
	x.SetInstance(device("r1", "phone", "1-1"))
	for _, tt := range []struct {
		instance, want, location string
		has                      bool
	}{
		{"r1", "phone", "1-1", true},
		{"r2", "phone", "1-2", true},
		{"r2", "1-1", "", true},
		{"r2", "key", "1-3", true},
		{"r2", "lamp", "", false},
	} {
		if got, has := x.RestartDevice("a", tt.instance, tt.want); got != tt.location || has != tt.has {
			t.Errorf("%s for %s: %q, %t", tt.want, tt.instance, got, has)
		}
	}
	if _, has := x.RestartDevice("b", "r1", "phone"); has {
		t.Error("a node that is not there has a device")
	}
	i := device("r1", "phone", "1-1")
	i.NextUSBLocation = "1-3"
	x.SetInstance(i)
	if got := busy(x); got != "1-1 1-3 " {
		t.Errorf("busy: %s", got)
	}
	x.SetInstance(device("r1", "key", "1-3"))
	if got := busy(x); got != "1-3 " {
		t.Errorf("busy: %s", got)
	}
	gone := phones()
	gone.USBDevices = gone.USBDevices[:2]
	x.SetNode(gone) // unplugged: no request gets another one for it
	if got := busy(x); got != "" {
		t.Errorf("busy: %s", got)
	}
}
