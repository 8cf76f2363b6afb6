package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Constants of setpriority(2) that x/sys does not have: the state of a thread in the
// background, whose use of processors and disks comes after that of others.
const (
	darwinThread = 3
	darwinBack   = 0x1000
)

// yield locks the goroutine to its own thread with a low priority for processors and disks. The
// thread ends with the goroutine.
func yield() {
	runtime.LockOSThread()
	_ = unix.Setpriority(darwinThread, 0, darwinBack) // it works without, too
}
