package steadyclock

import "golang.org/x/sys/unix"

// bootClock counts from the start of the machine, also while it sleeps.
const bootClock = unix.CLOCK_MONOTONIC
