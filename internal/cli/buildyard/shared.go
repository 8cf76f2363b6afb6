package buildyard

import (
	"context"
	"sync"
	"time"
)

// callGroup lets concurrent callers with the same query share calls. Each caller gets the result of a
// call that began after its request, so it is never older than that of a separate call. The zero value
// is ready.
type callGroup[T any] struct {
	mu    sync.Mutex
	asked map[string]*sharedQuery[T]
}

// sharedQuery is the state of the calls for one query.
type sharedQuery[T any] struct {
	running int
	next    *sharedCall[T] // begins when a running call ends; nil when no caller waits
}

// sharedCall is a call that several callers wait for.
type sharedCall[T any] struct {
	call func(context.Context) (T, error)
	done chan struct{}
	out  T
	err  error
}

// sharedCalls limits the concurrent calls of one query: a blocked one does not block later callers.
const sharedCalls = 4

// do makes a call, or waits for a shared one, which times out after limit.
func (s *callGroup[T]) do(
	ctx context.Context, question string, limit time.Duration, call func(context.Context) (T, error),
) (T, error) {
	wait := s.join(question, call)
	if wait == nil {
		defer s.finish(ctx, question, limit)
		return call(ctx)
	}
	select {
	case <-wait.done:
		return wait.out, wait.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// join returns the shared call to wait for; nil when the caller must make the call.
func (s *callGroup[T]) join(question string, call func(context.Context) (T, error)) *sharedCall[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[question]
	if a == nil {
		a = &sharedQuery[T]{}
		if s.asked == nil {
			s.asked = map[string]*sharedQuery[T]{}
		}
		s.asked[question] = a
	}
	if a.running < sharedCalls {
		a.running++
		return nil
	}
	if a.next == nil {
		a.next = &sharedCall[T]{call: call, done: make(chan struct{})}
	}
	return a.next
}

// finish records the end of a call and begins the next shared call.
func (s *callGroup[T]) finish(ctx context.Context, question string, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[question]
	next := a.next
	a.next = nil
	switch {
	case next != nil:
		go s.run(context.WithoutCancel(ctx), question, limit, next)
	case a.running == 1:
		delete(s.asked, question)
	default:
		a.running--
	}
}

func (s *callGroup[T]) run(ctx context.Context, question string, limit time.Duration, r *sharedCall[T]) {
	defer s.finish(ctx, question, limit)
	defer close(r.done)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r.out, r.err = r.call(ctx)
}
