//go:build !linux

package main

import "syscall"

// namespaceAttributes returns nothing: only Linux has namespaces, and mounting proc fails elsewhere.
func namespaceAttributes() *syscall.SysProcAttr { return nil }
