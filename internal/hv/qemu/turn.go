package qemu

import "context"

// turn is a lock that can be given up waiting for. It holds one token: the right
// to go on.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t.give()
	return t
}

func (t turn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t:
		return nil
	}
}

func (t turn) give() { t <- struct{}{} }
