//go:build !linux

package main

import (
	"errors"
	"fmt"
)

// errLinux: the figures are ratios to what the medium does, which needs Linux's way past the page cache.
var errLinux = fmt.Errorf("this benchmark runs on Linux: %w", errors.ErrUnsupported)

func readDirect(disk) error { return errLinux }

func writeDirect(string, int64) error { return errLinux }

func evict(string) error { return errLinux }

func settle(string) error { return errLinux }
