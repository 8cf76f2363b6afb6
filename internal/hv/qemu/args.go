package qemu

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

// hotplugPorts is the number of devices that can be plugged in while a guest runs.
const hotplugPorts = 4

// serialBufferBytes is how much of the serial console is kept, in QEMU's memory: a guest that writes to
// it indefinitely does not fill the disk.
const serialBufferBytes = 64 << 10

// launchSpec is everything a QEMU command line depends on. Numbers are the descriptors of open
// files that QEMU inherits.
type launchSpec struct {
	spec        hv.Spec
	platform    platform
	firmware    string // path of its file; "" = that of the machine type
	ports       []hv.PortRule
	host        hv.Host
	qmpFd       int
	qgaFd       int
	disks       []diskFiles
	tapFd       int          // 0 without a bridge
	vncListener net.Listener // of VNC connections; nil without
	sandbox     bool
	noFlush     bool

	awaitsState bool // waits for a state; its ports are opened once it has been refreshed
}

// diskFiles is one disk: the read-only files, lowest first, and the overlay that is written, opened
// twice so that a save can make it read-only.
type diskFiles struct {
	layers     []layerFile
	generation int // of the overlay
	rwFd, roFd int
}

// layerFile is one read-only image: an open file or, as long as that is incomplete, the socket that serves it.
type layerFile struct {
	blockNode string
	format    string
	fd        int
	socket    string
}

// videoController is a kind of video controller.
type videoController struct {
	device string // QEMU's name of it
	// layout names the devices and slots below, together with this controller. A saved state loads
	// only into the same layout: a change of the layout requires a new name.
	layout string
}

// commandLine returns the arguments of QEMU, without the program's name. Everything is named and
// nothing is left to defaults: a saved state needs the same machine again.
func commandLine(l launchSpec) []string {
	s, p, ports := l.spec, l.platform, l.ports
	if l.awaitsState {
		ports = nil
	}
	args := []string{
		"-uuid", s.UUID, // identifies the process, whatever the guest sees
		"-name", "guest=" + strings.ReplaceAll(s.Name, ",", ",,"),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", l.host.Machine + ",dump-guest-core=off" + p.machineOptions,
		"-accel", accelArg(l.host.Accelerator), "-cpu", l.host.CPU,
		"-smp", strconv.Itoa(s.CPUs), "-m", strconv.Itoa(s.MemoryMB) + "M",
		"-boot", "menu=off,strict=on",
		// A panicked guest is kept, so that its last output can be read.
		"-action", "panic=pause",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d,server=on,wait=off", l.qmpFd), "-mon", "chardev=qmp,mode=control",
		"-chardev", fmt.Sprintf("ringbuf,id=serial,size=%d", serialBufferBytes),
	}
	args = append(args, p.chipArgs...)
	args = append(args,
		// QEMU opens no port: connections to the screen are passed to it.
		"-vnc", fmt.Sprintf("none,password=on,connections=%d", maxVNCConnections), "-device",
		p.video[s.PCSettings().Video].device+",id=vga,addr=0x1",
		"-device", "virtio-serial-pci,id=vserial,addr=0x2",
		"-chardev", fmt.Sprintf("socket,id=qga,fd=%d,server=on,wait=off", l.qgaFd),
		"-device", "virtserialport,chardev=qga,id=qga0,name=org.qemu.guest_agent.0",
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,id=rng0,rng=rng,addr=0x3",
		"-device", p.panicDevice,
		"-netdev", netdevArg(s, ports, l.tapFd), "-device", "virtio-net-pci,id=nic0,netdev=net0,romfile=,mac="+s.MAC+
			",addr=0x4",
		"-device", "qemu-xhci,id=usb,addr=0x5")
	args = append(args, p.inputArgs...)
	if l.firmware != "" {
		args = append(args, "-bios", l.firmware)
	}
	for i := range hotplugPorts {
		args = append(args, "-device",
			fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d,addr=0x6.%d,multifunction=on", i, i+1, i))
	}
	if table := smbiosArg(s); table != "" {
		args = append(args, "-smbios", table)
	}
	if l.sandbox {
		args = append(args, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	}
	if l.awaitsState {
		args = append(args, "-incoming", "defer")
	}
	var sets fdSets
	for i, d := range l.disks {
		args = append(args, diskArgs(i, d, &sets, l.noFlush)...)
	}
	return args
}

func accelArg(name string) string {
	if name == "tcg" {
		return "tcg,thread=multi"
	}
	return name
}

// smbiosArg is what the guest reads about its machine, "" for QEMU's own.
func smbiosArg(s hv.Spec) string {
	var b strings.Builder
	pc := s.PCSettings()
	if pc.HardwareUUID != "" {
		b.WriteString(",uuid=" + pc.HardwareUUID)
	}
	if pc.Serial != "" {
		b.WriteString(",serial=" + strings.ReplaceAll(pc.Serial, ",", ",,"))
	}
	if b.Len() == 0 {
		return ""
	}
	return "type=1" + b.String()
}

// netdevArg returns the network behind the guest's card. Spec.Validate has checked that the addresses
// of the port rules are plain IPv4. restrict lets nothing out but responses; see configureMonitor
// for the cable of a disconnected guest.
func netdevArg(s hv.Spec, ports []hv.PortRule, tap int) string {
	if s.Network == hv.NetworkBridge {
		return fmt.Sprintf("tap,id=net0,fd=%d", tap)
	}
	var b strings.Builder
	b.WriteString("user,id=net0,ipv6=off")
	if s.Isolated || s.Network == hv.NetworkHost || s.Network == hv.NetworkDisconnected {
		b.WriteString(",restrict=on")
	}
	for _, p := range ports {
		b.WriteString(",hostfwd=" + hostfwdArg(p))
	}
	return b.String()
}

// fdSets assigns the numbers under which QEMU knows open files.
type fdSets int

// add creates a set of the files and returns its name.
func (n *fdSets) add(args *[]string, files ...int) string {
	*n++
	for _, fd := range files {
		*args = append(*args, "-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, *n))
	}
	return fmt.Sprintf("/dev/fdset/%d", *n)
}

// diskArgs adds one disk. All files are open already; a backing file named in a layer is
// overridden, since layers are untrusted.
func diskArgs(i int, d diskFiles, sets *fdSets, noFlush bool) []string {
	var args []string
	var below any
	for _, l := range d.layers {
		var node map[string]any
		if l.socket != "" {
			node = remoteNode(l.blockNode, l.socket)
		} else {
			node = layerNode(l, sets.add(&args, l.fd), below)
		}
		args = append(args, "-blockdev", jsonObject(node))
		below = l.blockNode
	}
	top := overlayNode(i, d.generation, sets.add(&args, d.rwFd, d.roFd), noFlush)
	top["backing"] = below
	boot := ""
	if i == 0 {
		boot = ",bootindex=1"
	}
	return append(args, "-blockdev", jsonObject(top), "-device",
		fmt.Sprintf("virtio-blk-pci,id=vd%d,drive=%s,addr=%#x,werror=stop,rerror=stop%s", i,
			overlayName(i, d.generation), hv.PCISlotFirstDisk+i, boot))
}

// layerNode returns the block node of a read-only image above another one.
func layerNode(l layerFile, file string, below any) map[string]any {
	node := map[string]any{
		"driver": l.format, "node-name": l.blockNode, "read-only": true,
		"file": map[string]any{
			"driver": "file", "node-name": l.blockNode + fileNode, "filename": file, "read-only": true,
		},
	}
	if l.format == "qcow2" {
		node["backing"] = below
	}
	return node
}

const (
	// fileNode ends the names of the nodes of files.
	fileNode = "-file"
	// remoteWait is how many seconds a read waits for a server that is away.
	remoteWait = 3600
	// remoteOpenWait is how many seconds the first connection is tried.
	remoteOpenWait = 30
)

// remoteNode returns the block node of an image behind a socket. Reads wait while its server is away, until
// there is one again.
func remoteNode(name, socket string) map[string]any {
	return map[string]any{
		"driver": "nbd", "node-name": name, "read-only": true, "reconnect-delay": remoteWait,
		"open-timeout": remoteOpenWait, "server": map[string]any{"type": "unix", "path": socket},
	}
}

// layerName returns the name of the node of a disk's layer; 0 is the base.
func layerName(disk, layer int) string { return fmt.Sprintf("disk%d-layer%d", disk, layer) }

func overlayName(disk, generation int) string { return fmt.Sprintf("disk%d-%d", disk, generation) }

// overlayNode returns the block node of an overlay, still without its backing node. QEMU locks
// nothing: with locks, a frozen overlay could not be read by another QEMU, and the source of a save
// could not continue. The VM's lock file prevents a second QEMU.
func overlayNode(disk, generation int, file string, noFlush bool) map[string]any {
	cache := map[string]any{"direct": false, "no-flush": noFlush}
	return map[string]any{
		"driver": "qcow2", "node-name": overlayName(disk, generation), "backing": nil, "discard": "unmap",
		"cache": cache,
		"file": map[string]any{
			"driver": "file", "node-name": overlayName(disk, generation) + fileNode, "filename": file,
			"locking": "off", "discard": "unmap", "cache": cache,
		},
	}
}

// jsonObject encodes a QEMU option as JSON, which needs no escaping.
func jsonObject(v map[string]any) string {
	b, err := json.Marshal(v)
	if err != nil { // maps of strings, numbers and maps always have a JSON form
		panic(err)
	}
	return string(b)
}
