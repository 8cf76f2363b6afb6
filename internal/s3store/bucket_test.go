package s3store_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/s3store"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

func connect(t *testing.T, o s3store.Options) *s3store.Bucket {
	t.Helper()
	b, err := s3store.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSelfTest(t *testing.T) {
	server := s3test.Start(t)
	o := server.Options()
	o.Prefix = "/a/b/"
	b := connect(t, o)
	if err := b.CheckBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.SelfTest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := server.Keys(""); len(left) != 0 || server.Uploads() != 0 {
		t.Errorf("the test left %v, and %d uploads", left, server.Uploads())
	}
	server.IgnoreConditions()
	if err := b.SelfTest(t.Context()); err == nil || !strings.Contains(err.Error(), "conditional writes") {
		t.Errorf("a server without conditions: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]s3store.Options{
		"no bucket":  {},
		"half a key": {Bucket: "b", AccessKeyID: "k"},
		"part size":  {Bucket: "b", PartSize: 1 << 20},
		"prefix":     {Bucket: "b", Prefix: "a/../b"},
		"endpoint":   {Bucket: "b", Endpoint: "s3.example.com"},
		"user":       {Bucket: "b", Endpoint: "https://u:p@s3.example.com"},
	} {
		if _, err := s3store.New(o); err == nil {
			t.Errorf("%s is accepted", name)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
}

// TestLostResponse: a write that was carried out without a response is not reported as a conflict with itself.
func TestLostResponse(t *testing.T) {
	server := s3test.Start(t)
	b := connect(t, server.Options())
	var once atomic.Bool
	server.SetFault(func(r *http.Request) s3test.Fault {
		return s3test.Fault{Lost: r.Method == http.MethodPut && once.CompareAndSwap(false, true)}
	})
	etag, err := b.Put(t.Context(), "k", []byte("first"), s3store.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	once.Store(false)
	if _, err := b.Put(t.Context(), "k", []byte("second"), s3store.Condition{ETag: etag}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), "k", []byte("third"), s3store.Condition{ETag: etag}); !errors.Is(err,
		s3store.ErrConflict) {
		t.Errorf("an old ETag: %v", err)
	}
}

func TestTemporaryErrors(t *testing.T) {
	server := s3test.Start(t)
	b := connect(t, server.Options())
	var n atomic.Int64
	server.SetFault(func(*http.Request) s3test.Fault {
		switch n.Add(1) % 4 {
		case 0:
			return s3test.Fault{Status: http.StatusServiceUnavailable}
		case 1:
			return s3test.Fault{Status: http.StatusInternalServerError}
		case 2:
			return s3test.Fault{CutAfter: 3}
		}
		return s3test.Fault{}
	})
	if _, err := b.Put(t.Context(), "k", []byte("0123456789"), s3store.Condition{}); err != nil {
		t.Fatal(err)
	}
	raw, _, err := b.Get(t.Context(), "k", 100)
	if err != nil || string(raw) != "0123456789" {
		t.Fatalf("%q, %v", raw, err)
	}
	if _, _, err := b.Get(t.Context(), "k", 5); err == nil {
		t.Error("an object beyond the limit is read")
	}
	server.SetFault(nil)
	if _, _, err := b.Get(t.Context(), "missing", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
}

func TestMultipart(t *testing.T) {
	server := s3test.Start(t)
	b := connect(t, server.Options())
	data := bytes.Repeat([]byte("0123456789abcdef"), 400_000) // two parts
	src := bytes.NewReader(data)
	u, err := b.BeginUpload(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var parts []s3store.UploadedPart
	for number, off := 2, int64(s3store.MinPartSize); number >= 1; number, off = number-1, off-s3store.MinPartSize {
		part := io.NewSectionReader(src, off, min(s3store.MinPartSize, src.Size()-off))
		p, err := b.PutPart(t.Context(), u, number, part)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	listed, err := b.ListParts(t.Context(), u)
	if err != nil || len(listed) != 2 {
		t.Fatalf("%v, %v", listed, err)
	}
	if same, err := listed[0].MatchesPart(src, 0); err != nil || !same {
		t.Errorf("part 1 differs: %v", err)
	}
	if same, err := listed[0].MatchesPart(src, 1); err != nil || same {
		t.Errorf("part 1 is taken for other bytes: %v", err)
	}
	var once atomic.Bool
	server.SetFault(func(r *http.Request) s3test.Fault {
		return s3test.Fault{Lost: r.Method == http.MethodPost && once.CompareAndSwap(false, true)}
	})
	if _, err := b.CompleteUpload(t.Context(), u, parts); err != nil {
		t.Fatal(err)
	}
	body, err := b.OpenRange(t.Context(), "k", s3store.MinPartSize-3, 7)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(raw, data[s3store.MinPartSize-3:][:7]) {
		t.Errorf("%q, %v", raw, err)
	}
	if err := errors.Join(body.Close(), b.AbortUpload(t.Context(), u)); err != nil {
		t.Error(err)
	}
	if got := b.PartSizeFor(1 << 40); got*9000 < 1<<40 {
		t.Errorf("parts of %d bytes for a terabyte", got)
	}
}

// TestLease: one owner at a time, by the time of the waiting one; an expired owner can neither write nor delete.
func TestLease(t *testing.T) {
	server := s3test.Start(t)
	o := server.Options()
	o.LeaseDuration = 1500 * time.Millisecond
	a, b := connect(t, o), connect(t, o)
	first, err := a.Acquire(t.Context(), s3store.Owner{ID: "a", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Put(t.Context(), "k", []byte("1"), s3store.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := b.Acquire(t.Context(), s3store.Owner{ID: "b", Host: "h"}) // a does not renew
	if err != nil {
		t.Fatal(err)
	}
	if second.Epoch() != first.Epoch()+1 {
		t.Errorf("epoch %d after %d", second.Epoch(), first.Epoch())
	}
	if _, err := first.Put(t.Context(), "k", []byte("2"), s3store.Condition{}); err == nil {
		t.Error("the old owner writes")
	}
	if err := first.Delete(t.Context(), "k"); err == nil || server.Get("k") == nil {
		t.Errorf("the old owner deletes: %v", err)
	}
	go first.Run(t.Context())
	select {
	case <-first.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the old owner does not notice")
	}
	again, err := a.Acquire(t.Context(), s3store.Owner{ID: "b", Host: "h"}) // the same directory after a crash
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Acquire(t.Context(), s3store.Owner{ID: "c", Host: "h"}); err != nil {
		t.Fatal(err)
	}
}

// TestSecondOwner: while the owner renews, another one is refused, or waits.
func TestSecondOwner(t *testing.T) {
	server := s3test.Start(t)
	o := server.Options()
	o.LeaseDuration = 1500 * time.Millisecond
	first, err := connect(t, o).Acquire(t.Context(), s3store.Owner{ID: "a", Host: "h", Address: "http://a"})
	if err != nil {
		t.Fatal(err)
	}
	go first.Run(t.Context())
	_, err = connect(t, o).Acquire(t.Context(), s3store.Owner{ID: "b", Host: "h"})
	owned, ok := errors.AsType[*s3store.OwnedError](err)
	if !ok || owned.Owner.Address != "http://a" {
		t.Fatalf("%v", err)
	}
	o.Standby = true
	done := make(chan error, 1)
	go func() {
		_, err := connect(t, o).Acquire(t.Context(), s3store.Owner{ID: "b", Host: "h"})
		done <- err
	}()
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a released lease is not taken")
	}
}

// TestLateDelete: a delete that is delayed on the way until the lease has ended is refused by the server.
func TestLateDelete(t *testing.T) {
	server := s3test.Start(t)
	o := server.Options()
	o.LeaseDuration = 5 * time.Second
	b := connect(t, o)
	l, err := b.Acquire(t.Context(), s3store.Owner{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Put(t.Context(), "k", []byte("1"), s3store.Condition{}); err != nil {
		t.Fatal(err)
	}
	server.SetFault(func(r *http.Request) s3test.Fault {
		if r.Method != http.MethodDelete {
			return s3test.Fault{}
		}
		return s3test.Fault{Before: func() { server.Advance(10 * time.Second) }}
	})
	if err := l.Delete(t.Context(), "k"); err == nil || server.Get("k") == nil {
		t.Errorf("a late delete was carried out: %v", err)
	}
	server.SetFault(nil)
	server.Advance(-10 * time.Second)
	if err := l.Delete(t.Context(), "k"); err != nil || server.Get("k") != nil {
		t.Errorf("delete: %v", err)
	}
}

// TestHungRenewal: a renewal without response does not cost the lease, since another one follows in time.
func TestHungRenewal(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	o := server.Options()
	o.LeaseDuration = 9 * time.Second
	l, err := connect(t, o).Acquire(t.Context(), s3store.Owner{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	hang, renewed := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	server.SetFault(func(r *http.Request) s3test.Fault {
		if r.Method != http.MethodPut {
			return s3test.Fault{}
		}
		switch n.Add(1) {
		case 1:
			return s3test.Fault{Before: func() { <-hang }, Status: http.StatusServiceUnavailable}
		case 2:
			close(renewed)
		}
		return s3test.Fault{}
	})
	t.Cleanup(func() { close(hang) })
	go l.Run(t.Context())
	select {
	case <-renewed:
	case <-time.After(time.Minute):
		t.Fatal("no other renewal follows")
	}
	if err := l.Valid(); err != nil {
		t.Error(err)
	}
}

// TestLifecycle: the rule of the prefix is written, and never in a bucket with rules of others.
func TestLifecycle(t *testing.T) {
	server := s3test.Start(t)
	o := server.Options()
	o.Prefix, o.AbortIncompleteDays = "site", 3
	if err := connect(t, o).ApplyLifecycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Prefix = "other"
	if err := connect(t, o).ApplyLifecycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	rules := string(server.Lifecycle())
	for _, want := range []string{"-site/<", "-other/<", "<DaysAfterInitiation>3<"} {
		if !strings.Contains(rules, want) {
			t.Errorf("the rules lack %s: %s", want, rules)
		}
	}
	foreign := "<LifecycleConfiguration><Rule><ID>mine</ID><Status>Enabled</Status><Unknown>1</Unknown></Rule>" +
		"</LifecycleConfiguration>"
	server.SetLifecycle([]byte(foreign))
	err := connect(t, o).ApplyLifecycle(t.Context())
	if err == nil || !strings.Contains(err.Error(), "mine") || string(server.Lifecycle()) != foreign {
		t.Errorf("rules of others: %v; now %s", err, server.Lifecycle())
	}
}
