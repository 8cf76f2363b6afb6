package watch

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openSource chooses among the methods of Linux.
func openSource(s *watchConfig, buffer *changeBuffer) (eventSource, error) {
	return openMethod(s, buffer, []methodEntry{{Fanotify, openFan}, {Inotify, openPartial}, {Poll, openPoll}})
}

// Between two reads of a queue the reader rests, so that many changes cost one read; the rest is
// shorter with many events, so that the queue does not overflow.
const (
	restShort  = 25 * time.Millisecond
	restLong   = 200 * time.Millisecond
	manyEvents = 1000 // events that require a short rest
)

// restTime returns how long to rest after so many events.
func restTime(before time.Duration, events int) time.Duration {
	if events >= manyEvents {
		return restShort
	}
	return min(restLong, max(restShort, 2*before))
}

// wakeFD wakes a goroutine that waits in poll(2).
type wakeFD int

func newWakeFD() (wakeFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return wakeFD(fd), os.NewSyscallError("eventfd", err)
}

// wake never blocks: the counter is far from its maximum.
func (s wakeFD) wake() {
	_, _ = unix.Write(int(s), []byte{1, 0, 0, 0, 0, 0, 0, 1})
}

func (s wakeFD) clear() {
	_, _ = unix.Read(int(s), make([]byte, 8))
}

// closeFD closes a file that was only read or queried: no data can be lost.
func closeFD(fd int) { _ = unix.Close(fd) }

// waitReady waits until one of several files is ready. Under load one mostly is: then the call does not
// block.
func waitReady(fds []unix.PollFd) error {
	err := pollFDs(fds, 0)
	for i := range fds {
		if err != nil || fds[i].Revents != 0 {
			return err
		}
	}
	return pollFDs(fds, -1)
}

// pollFDs waits until one of several files is ready; at most so long, indefinitely if below zero.
func pollFDs(fds []unix.PollFd, most time.Duration) error {
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

const mountInfoPath = "/proc/self/mountinfo"

// readMounts reads the current mount table.
func readMounts() (*mountTable, error) {
	b, err := os.ReadFile(mountInfoPath)
	if err != nil {
		return nil, err
	}
	return newMountTable(parseMounts(b)), nil
}

// openMounts opens the mount table, which reports changes by POLLPRI.
func openMounts() (int, error) {
	fd, err := unix.Open(mountInfoPath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: mountInfoPath, Err: err}
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	return fd, pollFDs(fds, 0) // earlier changes do not count
}

// touchesMount reports whether a mount has a part below the roots.
func (s *watchConfig) touchesMount(t *mountTable, m mountEntry) bool {
	if s.isRootMount(t, m) {
		return true
	}
	_, ok := s.rootOf(m.mountPoint)
	return ok && s.isWatched(m.mountPoint)
}

// isRootMount reports whether a root is in a mount.
func (s *watchConfig) isRootMount(t *mountTable, m mountEntry) bool {
	for _, r := range s.roots {
		if o, ok := t.mountOf(r); ok && o.id == m.id {
			return true
		}
	}
	return false
}
