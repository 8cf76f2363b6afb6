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
	mu      sync.Mutex
	queries map[string]*sharedQuery[T]
}

// sharedQuery is the state of the calls for one query.
type sharedQuery[T any] struct {
	runningCalls int
	waitingCall  *sharedCall[T] // begins when a running call ends; nil when no caller waits
}

// sharedCall is a call that several callers wait for.
type sharedCall[T any] struct {
	call   func(context.Context) (T, error)
	done   chan struct{}
	result T
	err    error
}

// maxSharedCalls limits the concurrent calls of one query: a blocked one does not block later callers.
const maxSharedCalls = 4

// call makes a call, or waits for a shared one, which times out after limit.
func (s *callGroup[T]) call(
	ctx context.Context, question string, limit time.Duration, call func(context.Context) (T, error),
) (T, error) {
	wait := s.joinCall(question, call)
	if wait == nil {
		defer s.finishCall(ctx, question, limit)
		return call(ctx)
	}
	select {
	case <-wait.done:
		return wait.result, wait.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// joinCall returns the shared call to wait for; nil when the caller must make the call.
func (s *callGroup[T]) joinCall(question string, call func(context.Context) (T, error)) *sharedCall[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.queries[question]
	if a == nil {
		a = &sharedQuery[T]{}
		if s.queries == nil {
			s.queries = map[string]*sharedQuery[T]{}
		}
		s.queries[question] = a
	}
	if a.runningCalls < maxSharedCalls {
		a.runningCalls++
		return nil
	}
	if a.waitingCall == nil {
		a.waitingCall = &sharedCall[T]{call: call, done: make(chan struct{})}
	}
	return a.waitingCall
}

// finishCall records the end of a call and begins the next shared call.
func (s *callGroup[T]) finishCall(ctx context.Context, question string, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.queries[question]
	next := a.waitingCall
	a.waitingCall = nil
	switch {
	case next != nil:
		go s.runShared(context.WithoutCancel(ctx), question, limit, next)
	case a.runningCalls == 1:
		delete(s.queries, question)
	default:
		a.runningCalls--
	}
}

func (s *callGroup[T]) runShared(ctx context.Context, question string, limit time.Duration, r *sharedCall[T]) {
	defer s.finishCall(ctx, question, limit)
	defer close(r.done)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r.result, r.err = r.call(ctx)
}
