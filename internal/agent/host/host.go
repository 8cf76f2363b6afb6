// Package host reads the facts of the machine that a node agent runs on: processors, memory, disk
// space, addresses, and the resource usage of a set of processes.
//
// It starts no process and changes nothing. Facts that an operating system does not provide are
// returned as zero, never guessed.
//
// Invariant: every call is cheap enough for a heartbeat; none waits for the network.
package host

import (
	"fmt"
	"net"
	"net/url"
	"runtime"
	"syscall"
)

// Facts are the properties that do not change while the machine runs.
type Facts struct {
	Arch      string // amd64 or arm64
	OS        string // linux or darwin
	OSVersion string // name and version for a reader, such as "macOS 15.6.1"
	Processor string // its name for a reader, such as "Apple M2 Pro"
	CPUs      int
	MemoryMB  int
}

// ReadFacts returns the facts of this machine.
func ReadFacts() Facts {
	return Facts{
		Arch: runtime.GOARCH, OS: runtime.GOOS, OSVersion: osVersion(), Processor: processorName(),
		CPUs: runtime.NumCPU(), MemoryMB: memoryMB(),
	}
}

// FreeMemoryMB returns the memory that new processes could use, in MiB.
func FreeMemoryMB() int { return freeMemoryMB() }

// DiskSpace returns the bytes that an ordinary user may still write, and all bytes, of the file system
// of path. On APFS the free bytes are those that the volumes of the container share: local snapshots and other
// purgeable data, which Finder counts as available, are not free, as macOS removes them at its own pace.
func DiskSpace(path string) (free, total int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("disk space of %s: %w", path, err)
	}
	block := int64(st.Bsize) // its type differs between systems
	return int64(st.Bavail) * block, int64(st.Blocks) * block, nil
}

// LocalAddressFor returns the address of this machine from which it would reach the host of a URL,
// or "" without a route. Nothing is sent.
func LocalAddressFor(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), "9")) //nolint:noctx // connecting UDP sends nothing
	if err != nil {
		return ""
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return ""
	}
	return local.IP.String()
}
