//go:build !linux

package qemu

import (
	"errors"
	"os"
)

func isBridge(string) bool { return false }

func openTap(string, string) (*os.File, error) {
	return nil, errors.New("bridges need a Linux host")
}
