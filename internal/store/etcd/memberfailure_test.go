package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// failWith makes etcd log a fatal message, in a separate goroutine that then blocks permanently.
func failWith(t *testing.T, f *memberFailure, message string, fields ...zap.Field) {
	t.Helper()
	log := memberLogger(nil, f, nil)
	go log.Fatal(message, fields...)
	<-f.ctx.Done()
}

// TestFailureIsTheFirst: the first error that etcd logged is the failure, and every later call is
// refused with its sentence.
func TestFailureIsTheFirst(t *testing.T) {
	write := &fs.PathError{Op: "write", Path: "db", Err: syscall.EIO}
	full := &fs.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}
	for name, tc := range map[string]struct {
		fields []zap.Field
		cause  string
		want   string
	}{
		"no reason": {nil, "failed", "The store cannot write its files: changes are refused until it can"},
		"another field": {
			[]zap.Field{zap.String("path", "db"), zap.Stringer("error", time.Second)},
			"failed",
			"The store cannot write its files: changes are refused until it can",
		},
		"a file": {
			[]zap.Field{zap.Error(write), zap.Int("size", 1)},
			"failed: write db: input/output error",
			"The store cannot write its files (input/output error): changes are refused until it can",
		},
		"a full disk": {[]zap.Field{zap.Error(full)}, "failed: write db: no space left on device", diskFullMessage},
		"a quota":     {[]zap.Field{zap.Error(syscall.EDQUOT)}, "failed: disk quota exceeded", diskFullMessage},
	} {
		f := newMemberFailure()
		if f.cause() != nil || f.callError() != nil || f.refusalMessage() != "" {
			t.Errorf("%s: failed before: %v", name, f.cause())
		}
		failWith(t, f, "failed", tc.fields...)
		if fmt.Sprint(f.cause()) != tc.cause || f.refusalMessage() != tc.want {
			t.Errorf("%s: %v, %q, want %s, %q", name, f.cause(), f.refusalMessage(), tc.cause, tc.want)
		}
		f.err = errors.Join(f.err) // the same one
		first := f.cause()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			f.markStarting(true)
			memberLogger(nil, f, nil).Fatal("another")
		}()
		<-done
		e, _ := errors.AsType[*farm.Error](f.callError())
		if e == nil || !errors.Is(e, store.ErrUnavailable) || !errors.Is(e, first) ||
			e.RetryAfter != refusalRetryAfter ||
			!strings.Contains(e.Error(), tc.want) {
			t.Errorf("%s: the refusal is %v", name, f.callError())
		}
	}
	var none *memberFailure
	if none.cause() != nil {
		t.Error("no member has failed")
	}
	if err := refusalError("why", nil); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "why") {
		t.Errorf("a refusal without a cause: %v", err)
	}
}

// TestFailureAtTheStart: a panic of the goroutine that starts the member is left to it; one of
// another goroutine is the failure.
func TestFailureAtTheStart(t *testing.T) {
	f := newMemberFailure()
	f.markStarting(true)
	func() {
		defer func() {
			if p := recover(); fmt.Sprint(p) != "failed" {
				t.Errorf("the start went on: %v", p)
			}
		}()
		memberLogger(nil, f, nil).Panic("failed")
	}()
	if f.cause() != nil {
		t.Errorf("a start that failed: %v", f.cause())
	}
	failWith(t, f, "another goroutine")
	failWith(t, f, "again")
	if fmt.Sprint(f.cause()) != "another goroutine" {
		t.Errorf("beside the start: %v", f.cause())
	}
	f.markStarting(false)
	if f.startGoroutine != 0 {
		t.Error("the start has not ended")
	}
}

// TestCallsEndWithTheMember: a call ends when its member fails.
func TestCallsEndWithTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []*memberFailure{nil, newMemberFailure()} {
			b := &Backend{failure: f}
			ctx, cancel := b.callContext(t.Context(), time.Second)
			time.Sleep(time.Second)
			synctest.Wait()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("after its time: %v", ctx.Err())
			}
			cancel()
			ctx, cancel = b.callContext(t.Context(), time.Second)
			cancel()
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("after its end: %v", ctx.Err())
			}
		}
		f := newMemberFailure()
		ctx, cancel := (&Backend{failure: f}).callContext(t.Context(), time.Second)
		defer cancel()
		f.cancel()
		synctest.Wait()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("after the failure: %v", ctx.Err())
		}
	})
}

// TestUnusable: a failing disk is distinguished from damaged files.
func TestUnusable(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "x", Err: syscall.EIO}: "etcd cannot use its files: open x: input/output error",
		syscall.ENOSPC:             "etcd cannot use its files: no space left on device",
		errors.New("two\n  lines"): "DIR is damaged: two lines",
	} {
		got := startError("DIR", err)
		if fmt.Sprint(got) != want {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
}

// TestWhatEtcdReports: etcd's messages are logged from warnings on, except those that are expected
// here.
func TestWhatEtcdReports(t *testing.T) {
	var text safeBuffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	g := &diskGuard{}
	for name, log := range map[string]*zap.Logger{"a client": zapLogger(logger), "a member": memberLogger(logger,
		newMemberFailure(), g)} {
		text.text.Reset()
		log.Debug("debug")
		log.Info("info")
		for message := range ignoredWarnings {
			log.Warn(message)
		}
		log = log.With(zap.String("with", "a"))
		log.Warn("warning", zap.Int("n", 1))
		log.Error("mistake")
		var lines []string
		for line := range strings.Lines(text.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, line)
		}
		want := "level=WARN msg=warning part=etcd n=1 with=a; level=ERROR msg=mistake part=etcd with=a"
		if got := strings.Join(lines, "; "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		log.Error(noSegmentMessage)
	}
	if !g.segmentFailed {
		t.Error("the guard was not told of the log file that could not be allocated")
	}
	zapLogger(nil).Warn("to nobody")
	memberLogger(nil, newMemberFailure(), nil).Error(noSegmentMessage)
}
