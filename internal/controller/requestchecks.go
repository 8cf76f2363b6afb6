package controller

import "context"

// requestCheck is a row of the table of checks that a request passes before anything is written.
type requestCheck[R any] struct {
	about string // in a few words
	// run returns why the request is refused; nil when it is not. It may note in the request what the
	// later checks, and the use case, need.
	run func(ctx context.Context, c *Controller, r *R) error
}

// runChecks runs checks in their order, until one refuses the request.
func runChecks[R any](ctx context.Context, c *Controller, checks []requestCheck[R], r *R) error {
	for _, check := range checks {
		if err := check.run(ctx, c, r); err != nil {
			return err
		}
	}
	return nil
}
