//go:build unix

package host

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that this process has used until now.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
