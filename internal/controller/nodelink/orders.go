package nodelink

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// orders returns the orders that the marked instances of a node need as they are now. A VM to
// remove may be that of an instance which is placed elsewhere, or not yet: its other orders are not
// for this node.
func (l *Link) orders(ctx context.Context, s *session, ids []string) []api.Order {
	var list []api.Order
	for _, id := range ids {
		inst, _, ok := l.db.Tables.Instances.Get(id)
		if ok && inst.NodeID == s.node && l.Orphans.protects(s, inst) {
			continue
		}
		if !ok || inst.NodeID != s.node {
			list = append(list, api.Order{Kind: api.OrderTerminate, InstanceID: id})
			continue
		}
		order, ok, err := l.order(ctx, inst)
		if err != nil { // it is sent again later
			l.db.Log.WarnContext(ctx, "reading the startup script of an instance failed; retrying", "instance_id", id,
				"error", err)
		}
		if ok {
			list = append(list, order)
		}
	}
	return list
}

// order returns the order that a node needs for an instance; ok is false when it needs none, or its
// content is not known yet.
func (l *Link) order(ctx context.Context, inst *farm.Instance) (o api.Order, ok bool, err error) {
	o = api.Order{Kind: orderFor(inst), InstanceID: inst.ID, Claim: inst.Claim}
	switch o.Kind {
	case api.OrderTerminate:
	case api.OrderStart:
		script, err := l.opts.Script(ctx, inst)
		if err != nil {
			return o, false, err
		}
		o.Start = l.startOrder(inst, script)
	case api.OrderSave:
		o.Task = inst.Task.ID
		o.Save = l.saveOrder(inst.Task.ID)
		return o, o.Save != nil, nil
	case api.OrderRestart:
		o.Task = inst.Task.ID
		o.Restart = &api.RestartOrder{VNCPassword: inst.Task.Restart.VNCPassword, USB: deviceOf(inst.Task.Restart)}
	default:
		return o, false, nil
	}
	return o, true, nil
}

func (l *Link) startOrder(inst *farm.Instance, script []byte) *api.StartOrder {
	o := inst.Options
	order := &api.StartOrder{
		TemplateID: inst.Template.ID, TemplateName: inst.Template.Name, Tag: inst.Template.Tag,
		Version: inst.Template.Version, ContentID: inst.Template.ContentID, Registry: inst.Registry,
		VMName: VMName(l.opts.VMNamePrefix, inst), PortOverride: o.PortOverride, Machine: machineOf(inst),
		StartTimeout: int(l.opts.StartTimeout / time.Second), Standby: inst.IsStandby(),
	}
	if len(script) > 0 {
		order.Script = &api.Script{
			Text: script, AtBoot: o.ScriptCondition == 1, Monitoring: o.ScriptMonitoring,
			Timeout: o.ScriptTimeout, OnFailure: int(o.ScriptOnFailure),
		}
	}
	if inst.Claimed != nil {
		order.TakesOver = inst.Claimed.Claim
	}
	for _, p := range o.Ports {
		order.Ports = append(order.Ports, api.NodePortRule(p))
	}
	return order
}

// machineOf returns what a start changes of the template's virtual hardware; nil for nothing.
func machineOf(inst *farm.Instance) *api.Machine {
	o := inst.Options
	m := api.Machine{
		CPUs: o.CPUs, MemoryMB: o.MemoryMB, DiskBytes: o.DiskBytes, KeepFileSys: o.KeepFileSystem,
		MAC:          cmp.Or(inst.MAC, o.MACAddress),
		HardwareUUID: o.HardwareUUID, Serial: o.HardwareSerial, Video: o.Video,
		Network: o.NetworkMode, NetworkLocal: o.NetworkLocal, VNCPassword: o.VNCPassword, USB: o.USBDevice,
		USBDevice: inst.USBLocation,
	}
	if o.VLAN != "" {
		m.VLAN, _ = strconv.Atoi(o.VLAN) // checked when it was requested
	}
	if m == (api.Machine{}) {
		return nil
	}
	return &m
}

// saveOrder returns the order of a save; nil when this replica does not have all of it yet.
func (l *Link) saveOrder(id string) *api.SaveOrder {
	s, _, ok := l.db.Tables.Saves.Get(id)
	if !ok {
		return nil
	}
	o := s.Request
	order := &api.SaveOrder{
		Registry: s.Registry, TemplateID: o.TemplateID, NewName: o.NewTemplateName, Tag: o.Tag,
		Description: o.Description,
		Suspend:     o.Suspend, SanityTest: o.SanityTest, MustSucceed: o.CancelOnScriptFailure,
	}
	if o.RevertBeforePush {
		order.Revert = &api.PushRevert{Tag: o.RevertTag}
	}
	if o.Scripted {
		script, _, ok := l.db.Tables.SaveChunks.Get(record.SaveScriptID(id))
		if !ok {
			return nil
		}
		order.Script = script.Data
	}
	return order
}

// VMName returns the name of an instance's VM. It depends on the record alone, so that an order
// that is sent again has the same name.
func VMName(prefix string, i *farm.Instance) string {
	ts := strconv.FormatInt(i.Created.UnixNano(), 10)
	if i.Options.NameTemplate == "" {
		room := max(0, maxVMName-len(prefix)-len(ts)-1)
		return prefix + farm.Clip(i.Template.Name, room) + "-" + ts
	}
	return farm.Clip(prefix+strings.NewReplacer(
		"$template_name", i.Template.Name, "$template_id", i.Template.ID, "$instance_id", i.ID,
		"$node_id", i.NodeID, "$node_name", i.NodeName, "$ts", ts,
	).Replace(i.Options.NameTemplate), maxVMName)
}

// maxVMName is the longest name that hypervisors accept, in bytes.
const maxVMName = 255

// deviceOf returns the USB field of a restart order: nil, or the location of the chosen device.
func deviceOf(o *farm.RestartOptions) *string {
	if o.USBDevice == nil || o.Device == "" {
		return o.USBDevice
	}
	return &o.Device
}
