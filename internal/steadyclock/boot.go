package steadyclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// processStart is the zero of systems without bootClock.
var processStart = time.Now()

func timeSinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}
