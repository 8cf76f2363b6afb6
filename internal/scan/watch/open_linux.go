package watch

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// open chooses among the methods of Linux.
func open(s *scope, news *changeBuffer) (source, error) {
	return choose(s, news, []methodEntry{{Fanotify, openFan}, {Inotify, openPartial}, {Poll, openPoll}})
}

// Between two reads of a queue the reader rests, so that many changes cost one read; the rest is
// shorter with many events, so that the queue does not overflow.
const (
	restShort = 25 * time.Millisecond
	restLong  = 200 * time.Millisecond
	restMany  = 1000 // events that require a short rest
)

// rest returns how long to rest after so many events.
func rest(before time.Duration, events int) time.Duration {
	if events >= restMany {
		return restShort
	}
	return min(restLong, max(restShort, 2*before))
}

// signal wakes a goroutine that waits in poll(2).
type signal int

func newSignal() (signal, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return signal(fd), os.NewSyscallError("eventfd", err)
}

// raise never blocks: the counter is far from its maximum.
func (s signal) raise() {
	_, _ = unix.Write(int(s), []byte{1, 0, 0, 0, 0, 0, 0, 1})
}

func (s signal) clear() {
	_, _ = unix.Read(int(s), make([]byte, 8))
}

// closeFile closes a file that was only read or queried: no data can be lost.
func closeFile(fd int) { _ = unix.Close(fd) }

// await waits until one of several files is ready. Under load one mostly is: then the call does not
// block.
func await(fds []unix.PollFd) error {
	err := wait(fds, 0)
	for i := range fds {
		if err != nil || fds[i].Revents != 0 {
			return err
		}
	}
	return wait(fds, -1)
}

// wait waits until one of several files is ready; at most so long, indefinitely if below zero.
func wait(fds []unix.PollFd, most time.Duration) error {
	ms := -1
	if most >= 0 {
		ms = int(most.Milliseconds())
	}
	for {
		_, err := unix.Poll(fds, ms)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}

const mountTable = "/proc/self/mountinfo"

// readMounts reads the current mount table.
func readMounts() (*table, error) {
	b, err := os.ReadFile(mountTable)
	if err != nil {
		return nil, err
	}
	return newTable(parseMounts(b)), nil
}

// openMounts opens the mount table, which reports changes by POLLPRI.
func openMounts() (int, error) {
	fd, err := unix.Open(mountTable, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: mountTable, Err: err}
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	return fd, wait(fds, 0) // earlier changes do not count
}

// relevant reports whether a mount has a part below the roots.
func (s *scope) relevant(t *table, m mounted) bool {
	if s.owns(t, m) {
		return true
	}
	_, ok := s.rootOf(m.point)
	return ok && s.seen(m.point)
}

// owns reports whether a root is in a mount.
func (s *scope) owns(t *table, m mounted) bool {
	for _, r := range s.roots {
		if o, ok := t.owner(r); ok && o.id == m.id {
			return true
		}
	}
	return false
}
