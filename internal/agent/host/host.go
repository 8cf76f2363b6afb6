// Package host reads the facts of the machine that a node agent runs on: processors,
// memory, disk space, addresses, and what a set of processes takes.
//
// It starts no process and changes nothing. What an operating system does not tell
// without help is answered as zero, never guessed.
//
// Invariant: every call is cheap enough for a heartbeat; none waits for the network.
package host

import (
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"syscall"
)

// Facts are what does not change while the machine runs.
type Facts struct {
	Arch     string // amd64 or arm64
	OS       string // linux or darwin
	CPUs     int
	MemoryMB int
}

// Read gives the facts of this machine.
func Read() Facts {
	return Facts{Arch: runtime.GOARCH, OS: runtime.GOOS, CPUs: runtime.NumCPU(), MemoryMB: memoryMB()}
}

// FreeMemoryMB is the memory that new processes could take.
func FreeMemoryMB() int { return freeMemoryMB() }

// Disk gives the bytes that an ordinary user may still write, and all bytes, of the
// file system that holds path.
func Disk(path string) (free, total int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("disk space of %s: %w", path, err)
	}
	block := int64(st.Bsize) //nolint:unconvert // its type differs between systems
	return int64(st.Bavail) * block, int64(st.Blocks) * block, nil
}

// Inode names a file on this machine, whatever it is called.
type Inode struct{ dev, ino uint64 }

// Allocated gives the bytes that the files below dir take on disk: holes count
// nothing, a file with two names counts once. Files that go away meanwhile are left
// out.
func Allocated(dir string) int64 {
	var sum int64
	for _, bytes := range Files(dir) {
		sum += bytes
	}
	return sum
}

// Files gives what each file below dir takes on disk, as Allocated counts it.
func Files(dir string) map[Inode]int64 {
	files := map[Inode]int64{}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went away; the rest still counts
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			files[Inode{uint64(st.Dev), st.Ino}] = st.Blocks * 512 //nolint:unconvert // its type differs between systems
		}
		return nil
	})
	return files
}

// AddressTowards gives the address of this machine from which it would reach the
// host of a URL, or "" when there is no route. Nothing is sent.
func AddressTowards(address string) string {
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
