package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Priorities of background work: after everything else, but not never, as an idle class would be on
// a machine that always builds.
const (
	lowNice          = 10
	lowIOPriority    = 2<<13 | 7 // best effort, the last level
	ioprioWhoProcess = 1
)

// lowerPriority locks the goroutine to its own thread with a low priority for processors and disks. The
// thread ends with the goroutine.
func lowerPriority() {
	runtime.LockOSThread()
	me := unix.Gettid()
	_ = unix.Setpriority(unix.PRIO_PROCESS, me, lowNice) // it works without, too
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(me), lowIOPriority)
}
