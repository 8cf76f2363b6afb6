package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
)

// checkedInOrder makes a request wrong for every check of a table. It repairs one after the other and
// compares what refuses it: the checks are done in the order of the table. Each row is a text of the
// refusal, and what repairs it.
func checkedInOrder(t *testing.T, rows []checkRow, do func() error) {
	t.Helper()
	for _, row := range rows {
		err := do()
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.about, err, row.want)
		}
		row.repair()
	}
	if err := do(); err != nil {
		t.Errorf("when all is right: %v", err)
	}
}

type checkRow struct {
	about, want string
	repair      func()
}

func TestStartChecks(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 5)
		a.info = &api.NodeInfo{Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone", Location: "1"}}}
		a.contact()
		c.shelf.suspend(aPin)
		c.shelf.addMac()
		req := StartRequest{TemplateID: "nothing", Count: 1, GroupID: "nothing", Options: farm.StartOptions{
			PinnedNode: "nothing", CPUs: 2, USBDevice: "nothing", VLAN: "7", MACAddress: "nothing", Priority: 1,
		}}
		rows := []checkRow{
			{"template and version", "not in the registry", func() { req.TemplateID, req.Tag = templateID, "v2" }},
			{"pinned node", "Node nothing not found", func() { req.Options.PinnedNode = "" }},
			{"group", "Group nothing not found", func() { req.GroupID = "" }},
			{"parameters of a suspended version", "vcpu cannot be set", func() { req.Tag = "v3" }},
			{"macOS guest", "USB devices cannot be attached to macOS guests", func() { req.Tag = "v1" }},
			{"USB device", "usb_device nothing cannot be attached", func() { req.Options.USBDevice = "phone" }},
			{"network", "vlan_tag requires the network mode bridge", func() { req.Options.VLAN = "" }},
			{"MAC address", "mac_address cannot be set", func() { req.Options.MACAddress = "" }},
		}
		for i, check := range startChecks {
			if i >= len(rows) || rows[i].about != check.about {
				t.Fatalf("no test of the check of the %s", check.about)
			}
		}
		checkedInOrder(t, rows, func() error {
			_, err := c.Start(t.Context(), req)
			return err
		})
	})
}

func TestSaveChecks(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		denied := false
		rights := func(context.Context, string) (*api.CallerRights, error) {
			if denied {
				return &api.CallerRights{Managed: true}, nil
			}
			return nil, nil
		}
		c.stop()
		c.start(Options{Rights: rights})
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		o := a.take(api.OrderStart)
		ask := saves.Request{SaveOptions: farm.SaveOptions{
			InstanceID: "nothing", TemplateID: "nothing", NewTemplateName: "other", Tag: "v1",
		}}
		denied = true
		rows := []checkRow{
			{"instance", "Not found", func() { ask.InstanceID = id }},
			{"state of the instance", "it must be Started", func() { a.say(o, api.PhaseRunning) }},
			{"template", "Not found", func() { ask.TemplateID = templateID }},
			{"rights on the template", "Not found", func() { denied = false }},
			{"name of the template", "does not match target_vm_id", func() { ask.NewTemplateName = "" }},
			{"tag", "already has the tag v1", func() { ask.Tag = "v9" }},
		}
		checkedInOrder(t, rows, func() error {
			_, err := c.Saves.Create(t.Context(), ask)
			return err
		})
	})
}
