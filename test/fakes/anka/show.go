package main

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

var listOptions = optionTable{
	"r": noValue, "running": noValue, "s": noValue, "stopped": noValue, "a": noValue, "all": noValue,
	"f": takesValue, "field": takesValue,
}

func showVersion(_ context.Context, c *call) (any, error) {
	return map[string]any{
		"product": "Anka Build Enterpriseplus", "version": c.knobs.Text("", knobVersion, "3.5.0"), "build": "191",
	}, nil
}

// licenseIsValid reports whether VMs may start.
func (l *library) licenseIsValid() bool { return l.knobs.Text("", knobLicense, "valid") == "valid" }

func showLicense(_ context.Context, c *call) (any, error) {
	if c.operand(0) != "show" {
		return nil, fail(codeUsage, "No such command '%s'.", c.operand(0))
	}
	return map[string]any{
		"license_type": c.knobs.Text("", knobLicenseType, "com.veertu.anka.entplus"),
		"status":       c.knobs.Text("", knobLicense, "valid"),
		"expires":      c.knobs.Text("", knobLicenseExpires, "17-aug-2099"),
		"product":      "Anka Build Enterpriseplus", "license_key": "****", "max_cpu": 0,
	}, nil
}

// listVMs has a null body without VMs.
func listVMs(_ context.Context, c *call) (any, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	var rows []map[string]any
	for _, v := range all {
		status := v.status()
		if c.has("r", "running") && status != running || c.has("s", "stopped") && status != stopped {
			continue
		}
		row := map[string]any{
			"name": v.Name, "uuid": v.UUID, "creation_date": stamp(v.Created), "version": v.Version, "status": status,
			"access_date": stamp(v.Started), "ip": v.address(status), "vnc_port": 0,
		}
		rows = append(rows, selectFields(row, c.value("f", "field")))
	}
	if rows == nil {
		return nil, nil //nolint:nilnil // the body is null
	}
	return rows, nil
}

// selectFields keeps the fields that are asked for, separated by commas.
func selectFields(row map[string]any, fields string) map[string]any {
	if fields == "" {
		fields = "name,uuid,creation_date,version,status"
	}
	out := map[string]any{}
	for field := range strings.SplitSeq(fields, ",") {
		out[field] = row[field]
	}
	return out
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// address returns the guest's address once it has one.
func (v *vm) address(status string) string {
	if status != running || v.Network.Mode == "disconnected" || v.library.knobs.IsSet(v.Name, knobNoNetwork) {
		return ""
	}
	delay := v.library.knobs.Seconds(v.Name, fakeguest.KnobNetworkDelay, 0)
	if time.Since(v.Started) < delay {
		return ""
	}
	return v.library.knobs.Address(v.Network.MAC)
}

func showVM(_ context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	switch c.operand(1) {
	case "":
		return v.show(), nil
	case "network":
		return v.showNetwork(), nil
	}
	return nil, fail(codeUsage, "No such command '%s'.", c.operand(1))
}

func (v *vm) show() map[string]any {
	status := v.status()
	body := map[string]any{
		"uuid": v.UUID, "name": v.Name, "version": v.Version, "creation_date": stamp(v.Created), "cpu_cores": v.CPUs,
		"ram": v.RAM, "ram_size": ramBytes(v.RAM), "hard_drive": v.DiskBytes, "image_size": imageBytes(v.image()),
		"addons_version": "3.5.0.191", "status": status, "stop_date": stamp(v.Stopped),
	}
	if status == running {
		maps.Copy(body, map[string]any{
			"pid": v.pid(), "ip": v.address(status), "mac": v.Network.MAC, "vnc_port": 0,
			"port_forwarding": v.rules(), "start_date": stamp(v.Started),
		})
	}
	return body
}

func (v *vm) showNetwork() map[string]any {
	status := v.status()
	return map[string]any{
		"mode": v.Network.Mode, "controller": "virtio-net", "ip": v.address(status), "mac": v.Network.MAC,
		"bridge": v.Network.Bridge, "vlan": v.Network.VLAN, "port_forwarding_rules": v.rules(),
	}
}

func (v *vm) rules() []rule {
	if v.Rules == nil {
		return []rule{}
	}
	return v.Rules
}

// ramBytes returns the bytes of "6G" or "4096M"; 0 if it is not an amount.
func ramBytes(text string) int64 {
	for suffix, unit := range map[string]int64{"G": 1 << 30, "M": 1 << 20} {
		if digits, found := strings.CutSuffix(strings.ToUpper(text), suffix); found {
			n, _ := strconv.ParseInt(digits, 10, 32)
			return n * unit
		}
	}
	return 0
}

func showConfig(_ context.Context, c *call) (any, error) {
	value, found := map[string]string{
		"vm_lib_dir": c.dir + "/vm_lib", "img_lib_dir": c.dir + "/img_lib", "portfwd_base": "10000",
		"default_user": guestUser, "default_passwd": "admin",
	}[c.operand(0)]
	if !found {
		return nil, fail(codeFailure, "%s: no such key", c.operand(0))
	}
	return map[string]any{c.operand(0): value}, nil
}
