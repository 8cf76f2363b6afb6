package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// memberFailure is the end of an embedded member whose files could not be written. After a failed write
// of its log or database etcd ends the process, with the stack of every goroutine. Here the
// affected goroutine blocks permanently instead, so that nothing is written or answered after a
// failed write, and the backend refuses every call. Only a new process that reads the files again
// may continue with them.
type memberFailure struct {
	ctx    context.Context // ends with the first failure
	cancel context.CancelFunc

	mu             sync.Mutex
	startGoroutine uint64 // the goroutine that starts the member; 0: it has started
	err            error
}

var _ zapcore.CheckWriteHook = (*memberFailure)(nil)

func newMemberFailure() *memberFailure {
	f := &memberFailure{}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// markStarting marks the calling goroutine as the one that starts the member: there, startEtcd catches
// etcd's panics.
func (f *memberFailure) markStarting(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.startGoroutine = 0; on {
		f.startGoroutine = goroutineID()
	}
}

// OnWrite implements zapcore.CheckWriteHook. etcd calls it after a message that it considers fatal.
func (f *memberFailure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	f.mu.Lock()
	if f.startGoroutine != 0 && f.startGoroutine == goroutineID() {
		f.mu.Unlock()
		panic(err)
	}
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	f.cancel()
	select {}
}

// cause returns the first failure; nil when there was none.
func (f *memberFailure) cause() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// callError returns the error of a call after the failure; nil when there was none.
func (f *memberFailure) callError() error {
	if f.cause() == nil {
		return nil
	}
	return refusalError(f.refusalMessage(), f.cause())
}

// refusalRetryAfter is when a client may retry after a refusal.
const refusalRetryAfter = 5 * time.Second

// refusalError returns the error of a call that was not sent, with a sentence for users. cause may be
// nil.
func refusalError(sentence string, cause error) error {
	err := store.ErrUnavailable
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	e := farm.Unavailable(err, "%s", sentence)
	e.RetryAfter = refusalRetryAfter
	return e
}

// refusalMessage returns why changes are refused, as a sentence for users; empty: there was no failure.
func (f *memberFailure) refusalMessage() string {
	var path *fs.PathError
	switch err := f.cause(); {
	case err == nil:
		return ""
	case isDiskFull(err):
		return diskFullMessage
	case errors.As(err, &path):
		return fmt.Sprintf("The store cannot write its files (%v): changes are refused until it can", path.Err)
	}
	return "The store cannot write its files: changes are refused until it can"
}

// callContext limits the time of a call, and ends the call when the member fails.
func (b *Backend) callContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	if b.failure == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(b.failure.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// goroutineID returns the number of the calling goroutine, from its stack. It is called when a
// member starts, and when one fails.
func goroutineID() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(text, []byte(" "))
	id, _ := strconv.ParseUint(string(digits), 10, 64)
	return id
}
