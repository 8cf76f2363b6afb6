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
		var peer *unix.Ucred
		if peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked == nil {
			pid = int(peer.Pid)
		}
	})
	if err == nil {
		err = asked
	}
	return pid, err
}
