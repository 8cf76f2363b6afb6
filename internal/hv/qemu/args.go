package qemu

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

// serialBytes is how much of the serial console is kept, in QEMU's memory: a
// guest that writes there for ever fills no disk.
const serialBytes = 64 << 10

// launch is everything a QEMU command line depends on. Numbers are those of
// open files that QEMU inherits.
type launch struct {
	spec    hv.Spec
	ports   []hv.PortRule
	host    hv.Host
	qmp     int
	qga     int
	disks   []diskFiles
	sandbox bool
	noFlush bool
}

// diskFiles is one disk: the overlay that is written on its base.
type diskFiles struct {
	overlay, base int
	format        string // of the base
}

// commandLine is the whole of what QEMU is told, without the program's name.
// Everything is named, nothing is left to defaults: a saved state needs the
// same machine again.
func commandLine(l launch) []string {
	s := l.spec
	args := []string{
		"-uuid", s.UUID,
		"-name", "guest=" + strings.ReplaceAll(s.Name, ",", ",,"),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", l.host.Machine + ",dump-guest-core=off",
		"-accel", accelArg(l.host.Accelerator), "-cpu", l.host.CPU,
		"-smp", strconv.Itoa(s.CPUs), "-m", strconv.Itoa(s.MemoryMB) + "M",
		"-boot", "menu=off,strict=on",
		// A panicked guest is kept, so that its last words can be read.
		"-action", "panic=pause",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d,server=on,wait=off", l.qmp), "-mon", "chardev=qmp,mode=control",
		"-chardev", fmt.Sprintf("ringbuf,id=serial,size=%d", serialBytes), "-device", "isa-serial,chardev=serial",
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("socket,id=qga,fd=%d,server=on,wait=off", l.qga),
		"-device", "virtserialport,chardev=qga,id=qga0,name=org.qemu.guest_agent.0",
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng",
		"-device", "pvpanic",
		"-netdev", netdev(l.ports), "-device", "virtio-net-pci,netdev=net0,romfile=",
	}
	if l.sandbox {
		args = append(args, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	}
	for i, d := range l.disks {
		args = append(args, diskArgs(i, d, l.noFlush)...)
	}
	return args
}

func accelArg(name string) string {
	if name == "tcg" {
		return "tcg,thread=multi"
	}
	return name
}

// netdev is user networking with the port rules. Their addresses were checked
// to be plain IPv4 by Spec.Validate.
func netdev(ports []hv.PortRule) string {
	var b strings.Builder
	b.WriteString("user,id=net0,ipv6=off")
	for _, p := range ports {
		fmt.Fprintf(&b, ",hostfwd=%s:%s:%d-:%d", p.Protocol, p.HostIP, p.HostPort, p.GuestPort)
	}
	return b.String()
}

// diskArgs gives QEMU one disk. Both files are open already; the base's own
// idea of what lies beneath it is overridden, for it comes from outside.
func diskArgs(i int, d diskFiles, noFlush bool) []string {
	set := 2*i + 1
	cache := map[string]any{"direct": false, "no-flush": noFlush}
	base := map[string]any{
		"driver": d.format, "node-name": fmt.Sprint("base", i), "read-only": true,
		"file": map[string]any{"driver": "file", "filename": fmt.Sprintf("/dev/fdset/%d", set+1), "read-only": true},
	}
	if d.format == "qcow2" {
		base["backing"] = nil
	}
	overlay := map[string]any{
		"driver": "qcow2", "node-name": fmt.Sprint("disk", i), "backing": fmt.Sprint("base", i),
		"discard": "unmap", "cache": cache,
		"file": map[string]any{
			"driver": "file", "filename": fmt.Sprintf("/dev/fdset/%d", set), "discard": "unmap", "cache": cache,
		},
	}
	boot := ""
	if i == 0 {
		boot = ",bootindex=1"
	}
	return []string{
		"-add-fd", fmt.Sprintf("fd=%d,set=%d", d.overlay, set), "-add-fd", fmt.Sprintf("fd=%d,set=%d", d.base, set+1),
		"-blockdev", object(base), "-blockdev", object(overlay),
		"-device", fmt.Sprintf("virtio-blk-pci,id=vd%d,drive=disk%d%s", i, i, boot),
	}
}

// object writes a QEMU option in its JSON form, which needs no escaping.
func object(v map[string]any) string {
	b, err := json.Marshal(v)
	if err != nil { // maps of strings, numbers and maps always have a JSON form
		panic(err)
	}
	return string(b)
}
