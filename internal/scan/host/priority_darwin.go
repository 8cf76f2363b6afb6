package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Constants of setpriority(2) that x/sys does not have: the state of a thread in the
// background, whose use of processors and disks comes after that of others.
const (
	prioDarwinThread     = 3
	prioDarwinBackground = 0x1000
)

// lowerPriority locks the goroutine to its own thread with a low priority for processors and disks. The
// thread ends with the goroutine.
func lowerPriority() {
	runtime.LockOSThread()
	_ = unix.Setpriority(prioDarwinThread, 0, prioDarwinBackground) // it works without, too
}
