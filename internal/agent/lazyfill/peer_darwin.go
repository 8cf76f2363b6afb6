package lazyfill

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerPID returns the process that opened a connection.
func peerPID(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		pid, asked = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err == nil {
		err = asked
	}
	return pid, err
}
