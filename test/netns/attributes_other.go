//go:build !linux

package netns

import "syscall"

// attributes returns nothing: only Linux has namespaces, and mounting proc fails elsewhere.
func attributes() *syscall.SysProcAttr { return nil }
