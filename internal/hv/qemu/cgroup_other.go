//go:build !linux

package qemu

import (
	"context"
	"errors"
	"syscall"

	"github.com/buildyard/buildyard/internal/hv"
)

// cgroups exist on Linux only.
type cgroups struct{}

func openCgroups(Options, string) (*cgroups, error) {
	return nil, errors.New("cgroups require Linux")
}

func (*cgroups) try(context.Context, *Driver) error { return nil }

func (*cgroups) place(*syscall.SysProcAttr, hv.Spec) (func(), error) { return func() {}, nil }

func (*cgroups) leave(string) string { return "" }
