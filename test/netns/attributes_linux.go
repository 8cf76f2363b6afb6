package netns

import "syscall"

// attributes makes a process begin in namespaces that end with it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}
