package rig

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// TestEnv provides what helpers of tests need (authorities, identity providers) in a program that
// is not a test. A failure is an error of Do; it can be used in no other way.
type TestEnv struct {
	testing.TB // nil: what is not here may not be called

	ctx     context.Context // as testing.T has it
	cleanup []func()
}

// stopped is the panic value of a failure.
type stopped struct{ error }

// NewStand creates a test environment; Close ends what was created in it.
func NewStand(ctx context.Context) *TestEnv { return &TestEnv{ctx: ctx} }

// Do runs a function that may fail, and returns the failure.
func (s *TestEnv) Do(do func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stopped:
			err = p.error
		default:
			panic(p)
		}
	}()
	do()
	return nil
}

// Close runs the cleanup functions, the last first.
func (s *TestEnv) Close() {
	for _, do := range slices.Backward(s.cleanup) {
		do()
	}
	s.cleanup = nil
}

// Helper implements testing.TB.
func (s *TestEnv) Helper() {}

// Context implements testing.TB.
func (s *TestEnv) Context() context.Context { return s.ctx }

// Cleanup implements testing.TB.
func (s *TestEnv) Cleanup(do func()) { s.cleanup = append(s.cleanup, do) }

// Fatal implements testing.TB.
func (s *TestEnv) Fatal(args ...any) { panic(stopped{fmt.Errorf("%s", fmt.Sprint(args...))}) }

// Fatalf implements testing.TB.
func (s *TestEnv) Fatalf(format string, args ...any) { panic(stopped{fmt.Errorf(format, args...)}) }
