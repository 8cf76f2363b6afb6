package fakeguest

import "golang.org/x/sys/unix"

const zombie = 5 // SZOMB of sys/proc.h

// adoptOrphans does nothing: macOS cannot, so that processes whose parent has ended survive the guest.
func adoptOrphans() error { return nil }

// parents returns the parent of each process of this host that is not a zombie.
func parents() map[int]int {
	out := map[int]int{}
	all, _ := unix.SysctlKinfoProcSlice("kern.proc.all")
	for _, p := range all {
		if p.Proc.P_stat != zombie {
			out[int(p.Proc.P_pid)] = int(p.Eproc.Ppid)
		}
	}
	return out
}
