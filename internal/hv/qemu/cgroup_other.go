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

func (*cgroups) testStart(context.Context, *Driver) error { return nil }

func (*cgroups) createFor(*syscall.SysProcAttr, hv.Spec) (func(), error) { return func() {}, nil }

func (*cgroups) removeFor(string) string { return "" }
