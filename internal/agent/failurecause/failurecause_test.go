package failurecause_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/failurecause"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

func TestOf(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/var/lib/node/x", Err: syscall.ENOSPC}
	for _, tc := range []struct {
		name  string
		err   error
		step  farm.FailureStep
		class farm.FailureClass
		want  farm.FailureStep // "": step
	}{
		{"registry away", farm.Unavailable(errors.New("refused"), "no"), farm.StepPull, farm.FailureRegistry, ""},
		{"registry refuses the node", farm.Errorf(farm.CodeForbidden, "no"), farm.StepPull, farm.FailureRegistry, ""},
		{"version gone", farm.Errorf(farm.CodeNoVersion, "no"), farm.StepPull, farm.FailureTemplate, ""},
		{"disk full in a pull", fmt.Errorf("pull: %w", full), farm.StepPull, farm.FailureDisk, ""},
		{
			"no space for a pull", farm.MarkFailure(farm.Refused("no"), farm.FailureDisk, ""),
			farm.StepPull, farm.FailureDisk, "",
		},
		{"configuration of a version", farm.Refused("no"), farm.StepStartVM, farm.FailureTemplate, ""},
		{"request", hv.RefusedError("no"), farm.StepStartVM, farm.FailureConfiguration, ""},
		{
			"boot", errors.Join(fmt.Errorf("x: %w", hv.ErrBootTimeout), errors.New("y")), farm.StepStartVM,
			farm.FailureGuestTimeout, farm.StepBoot,
		},
		{"memory", &fs.PathError{Err: syscall.ENOMEM}, farm.StepStartVM, farm.FailureMemory, ""},
		{
			"only the step is marked", farm.MarkFailure(errors.New("x"), "", farm.StepCreateDisk),
			farm.StepStartVM, farm.FailureDisk, farm.StepCreateDisk,
		},
		{
			"a mark of the step and a known error", farm.MarkFailure(full, "", farm.StepCreateDisk),
			farm.StepStartVM, farm.FailureDisk, farm.StepCreateDisk,
		},
		{"anything", errors.New("x"), farm.StepStartVM, farm.FailureHypervisor, ""},
		{"anything in another step", errors.New("x"), farm.StepSave, farm.FailureUnknown, ""},
	} {
		want := api.NodeFailure{Class: string(tc.class), Step: string(tc.want)}
		if tc.want == "" {
			want.Step = string(tc.step)
		}
		if got := failurecause.Of(tc.err, tc.step); *got != want {
			t.Errorf("%s: %+v, want %+v", tc.name, *got, want)
		}
	}
}

func TestOfStopped(t *testing.T) {
	for _, tc := range []struct {
		vm   hv.VM
		want farm.FailureClass
	}{
		{hv.VM{}, farm.FailureGuestStopped},
		{hv.VM{Failure: "signal: killed"}, farm.FailureHypervisor},
		{hv.VM{Failure: "full", FailureClass: farm.FailureDisk}, farm.FailureDisk},
	} {
		got := failurecause.OfStopped(tc.vm)
		if got.Class != string(tc.want) || got.Step != string(farm.StepRun) {
			t.Errorf("%+v: %+v, want %s", tc.vm, *got, tc.want)
		}
	}
}
