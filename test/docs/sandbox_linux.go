package main

import (
	"os"
	"syscall"
)

// namespaces are those of a page: what it starts ends with its first process.
const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS

func maySeparate() bool { return os.Geteuid() == 0 }

func attributes(isolated bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if isolated {
		a.Cloneflags = namespaces
	}
	return a
}
