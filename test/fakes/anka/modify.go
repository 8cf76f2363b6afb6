package main

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

var modifyOptions = optionTable{
	"s": takesValue, "size": takesValue, // disk
	"t": takesValue, "b": takesValue, "m": takesValue, "v": takesValue, "no-local": noValue, // network
	"d": noValue, "p": takesValue, // port
	"vnc": takesValue, // display
}

// modifiers change a VM by one command of modify each; the operands after that are its own.
var modifiers = map[string]func(c *call, v *vm, operands []string) error{
	"cpu":     modifyCPU,
	"ram":     modifyRAM,
	"disk":    modifyDisk,
	"network": modifyNetwork,
	"port":    modifyPort,
	"display": func(c *call, v *vm, _ []string) error { v.VNC = c.value("vnc") == "on"; return nil },
	"label":   modifyLabel,
}

func modifyVM(_ context.Context, c *call) (any, error) {
	v, err := c.idle(c.operand(0))
	if err != nil {
		return nil, err
	}
	if v.status() == failed {
		return nil, v.failedError()
	}
	modify, found := modifiers[c.operand(1)]
	if !found {
		return nil, fail(codeUsage, "No such command '%s'.", c.operand(1))
	}
	if err := modify(c, v, c.operands[2:]); err != nil {
		return nil, err
	}
	return nil, v.write()
}

func modifyCPU(_ *call, v *vm, operands []string) error {
	n, err := strconv.Atoi(strings.Join(operands, " "))
	if err != nil || n < 1 {
		return fail(codeUsage, "'%s' is not a valid integer range", strings.Join(operands, " "))
	}
	v.CPUs = n
	return nil
}

func modifyRAM(_ *call, v *vm, operands []string) error {
	text := strings.Join(operands, " ")
	if ramBytes(text) == 0 {
		return fail(codeUsage, "'%s' is not a valid size", text)
	}
	v.RAM = text
	return nil
}

func modifyDisk(c *call, v *vm, _ []string) error {
	size := ramBytes(c.value("s", "size"))
	if size <= v.DiskBytes {
		return fail(codeFailure, "disk can only be grown: %s", c.value("s", "size"))
	}
	v.DiskBytes = size
	return nil
}

func modifyNetwork(c *call, v *vm, _ []string) error {
	n := &v.Network
	if mode := c.value("t"); mode != "" {
		if !slices.Contains([]string{"shared", "nat", "host", "bridge", "disconnected"}, mode) {
			return fail(codeUsage, "'%s' is not one of 'shared', 'nat', 'host', 'bridge', 'disconnected'.", mode)
		}
		n.Mode = mode
	}
	for option, field := range map[string]*string{"b": &n.Bridge, "m": &n.MAC, "v": &n.VLAN} {
		if c.has(option) {
			*field = c.value(option)
		}
	}
	n.NoLocal = c.has("no-local")
	return nil
}

// modifyPort adds or replaces a rule NAME GUEST[:IP][:PORT], or with -d removes it.
func modifyPort(c *call, v *vm, operands []string) error {
	if len(operands) == 0 {
		return fail(codeUsage, "Missing argument 'RULE_NAME'.")
	}
	v.Rules = slices.DeleteFunc(v.Rules, func(r rule) bool { return r.Name == operands[0] })
	if c.has("d") {
		return nil
	}
	if len(operands) != 2 {
		return fail(codeUsage, "Missing argument 'GUEST_PORT'.")
	}
	r := rule{Name: operands[0], Protocol: "tcp", HostIP: "0.0.0.0"}
	for i, part := range strings.Split(operands[1], ":") {
		port, err := strconv.ParseUint(part, 10, 16)
		_, addrErr := netip.ParseAddr(part)
		switch {
		case i == 0 && err == nil:
			r.GuestPort = int(port)
		case i > 0 && err == nil:
			r.HostPort = int(port)
		case i == 1 && addrErr == nil:
			r.HostIP = part
		default:
			return fail(codeUsage, "'%s' is not a valid port", operands[1])
		}
	}
	v.Rules = append(v.Rules, r)
	return nil
}

func modifyLabel(_ *call, v *vm, operands []string) error {
	if len(operands) != 2 {
		return fail(codeUsage, "Missing argument 'VALUE'.")
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	v.Labels[operands[0]] = operands[1]
	return nil
}
