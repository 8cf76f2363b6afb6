//go:build !linux

package main

import "syscall"

func maySeparate() bool { return false }

func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
