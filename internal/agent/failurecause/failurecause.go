// Package failurecause classifies the errors that end an instance on a node: what the cause is, and in which step it
// arose.
//
// It does not change an error and reads no text of one: it uses marks that the error has from the place where it
// arose, and errors that callers distinguish.
//
// Invariant: every result has a class and a step of the closed sets.
package failurecause

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// known maps errors to what they mean in any step. An empty step is that of the caller.
var known = []struct {
	is      error
	failure farm.Failure
}{
	{syscall.ENOSPC, farm.Failure{Class: farm.FailureDisk}},
	{syscall.EDQUOT, farm.Failure{Class: farm.FailureDisk}},
	{syscall.EROFS, farm.Failure{Class: farm.FailureDisk}},
	{syscall.EIO, farm.Failure{Class: farm.FailureDisk}},
	{syscall.ENOMEM, farm.Failure{Class: farm.FailureMemory}},
	{hv.ErrBootTimeout, farm.Failure{Class: farm.FailureGuestTimeout, Step: farm.StepBoot}},
	{hv.ErrRefused, farm.Failure{Class: farm.FailureConfiguration}},
}

// codeClasses maps the code of a refusal to its class: during a pull the registry or the version caused it, later
// the configuration of the version.
var codeClasses = map[farm.Code]farm.FailureClass{
	farm.CodeInvalid: farm.FailureTemplate, farm.CodeRefused: farm.FailureTemplate,
	farm.CodeNotFound: farm.FailureTemplate, farm.CodeNoVersion: farm.FailureTemplate,
	farm.CodeNoParent: farm.FailureTemplate, farm.CodeTooLarge: farm.FailureTemplate,
}

// stepClasses maps a step to the class of an error that nothing else classifies.
var stepClasses = map[farm.FailureStep]farm.FailureClass{
	farm.StepPull: farm.FailureRegistry, farm.StepCreateDisk: farm.FailureDisk,
	farm.StepStartVM: farm.FailureHypervisor, farm.StepBoot: farm.FailureHypervisor,
	farm.StepRun: farm.FailureGuestStopped,
}

// Of classifies an error that arose in a step.
func Of(err error, step farm.FailureStep) *api.NodeFailure {
	f := farm.FailureOf(err)
	for _, k := range known {
		if f.Class == "" && errors.Is(err, k.is) {
			f.Class, f.Step = k.failure.Class, cmp.Or(f.Step, k.failure.Step)
		}
	}
	f.Step = cmp.Or(f.Step, step)
	f.Class = cmp.Or(f.Class, codeClasses[farm.CodeOf(err)], stepClasses[f.Step], farm.FailureUnknown)
	return report(f)
}

// OfStopped classifies the end of a VM that ran and was not asked to end.
func OfStopped(vm hv.VM) *api.NodeFailure {
	class := cmp.Or(vm.FailureClass, farm.FailureHypervisor)
	if vm.Failure == "" {
		class = farm.FailureGuestStopped
	}
	return report(farm.Failure{Class: class, Step: farm.StepRun})
}

// OfLost is the failure of a VM that no longer exists.
func OfLost() *api.NodeFailure {
	return report(farm.Failure{Class: farm.FailureVMLost, Step: farm.StepRun})
}

func report(f farm.Failure) *api.NodeFailure {
	return &api.NodeFailure{Class: string(f.Class), Step: string(f.Step)}
}
