package qemu

import "context"

// cancelableLock is a lock whose waiters can be canceled. It contains one token: the right to proceed.
type cancelableLock chan struct{}

func newCancelableLock() cancelableLock {
	t := make(cancelableLock, 1)
	t.unlock()
	return t
}

func (t cancelableLock) lock(ctx context.Context) error {
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

func (t cancelableLock) unlock() { t <- struct{}{} }
