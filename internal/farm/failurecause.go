package farm

import (
	"errors"
	"slices"
)

// failureError is an error whose cause or step is known where it arose.
type failureError struct {
	failure Failure
	err     error
}

func (e *failureError) Error() string { return e.err.Error() }

func (e *failureError) Unwrap() error { return e.err }

// MarkFailure adds the failure class or the step to an error; its text stays. An empty class or step is not
// known, and what the error is already marked with takes precedence. It returns nil for a nil error.
func MarkFailure(err error, class FailureClass, step FailureStep) error {
	if err == nil {
		return nil
	}
	return &failureError{Failure{class, step}, err}
}

// FailureOf returns what an error is marked with. Class and step are empty as far as it is not marked. The mark
// nearest to the place where the error arose counts.
func FailureOf(err error) (f Failure) {
	for {
		mark, ok := errors.AsType[*failureError](err)
		if !ok {
			return f
		}
		if mark.failure.Class != "" {
			f.Class = mark.failure.Class
		}
		if mark.failure.Step != "" {
			f.Step = mark.failure.Step
		}
		err = mark.err
	}
}

// ReportedFailure returns the failure that a node reported, with values that are not in the closed sets
// replaced: an unknown class by FailureUnknown, an unknown step by def.
func ReportedFailure(class, step string, def FailureStep) *Failure {
	f := &Failure{FailureClass(class), FailureStep(step)}
	if _, ok := failureInfoOf[f.Class]; !ok {
		f.Class = FailureUnknown
	}
	if !slices.Contains(FailureSteps, f.Step) {
		f.Step = def
	}
	return f
}
