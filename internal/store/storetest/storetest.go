// Package storetest is the conformance suite of store.Backend, and of a Store on top of it: alone,
// disturbed by faults, and two of them on one backend, which reveals outdated counts, resurrected
// deletes and lost reads.
//
// It excludes unexported behavior: it uses the exported interface only.
//
// Invariant: every backend passes the same suite; no test depends on which backend it runs on.
package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// Subject is a backend under test. Every test uses its own keys, so one backend serves them all.
type Subject struct {
	Backend store.Backend
	// Compact removes the backend's history up to and including rev.
	Compact func(rev int64) error
	// Expire takes a lock from its holder without notice.
	Expire func(fence store.Fence) error
}

// patience bounds every wait of the suite; no test waits that long when it passes.
const patience = time.Minute

// Record is what the suite stores.
type Record struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
}

// Group is a part of the suite.
type Group int

// The groups. Backend tests the backend alone, the others a Store on top of it.
const (
	Backend Group = iota
	Commits
	Reads
	Failures
	Leases
	Replicas
)

type testCase struct {
	name string
	run  func(*testing.T, *bench)
}

// tests are those of each group.
var tests = map[Group][]testCase{
	Backend: backendTests, Commits: commitTests, Reads: readTests, Failures: faultTests, Leases: leaseTests,
	Replicas: replicaTests,
}

// Run tests the subject by the tests of some groups; without any it is by all.
func Run(t *testing.T, subject Subject, groups ...Group) {
	if len(groups) == 0 {
		groups = []Group{Backend, Commits, Reads, Failures, Leases, Replicas}
	}
	for _, group := range groups {
		for _, tc := range tests[group] {
			t.Run(tc.name, func(t *testing.T) { tc.run(t, newBench(t, subject)) })
		}
	}
}

// bench is the environment of one test.
type bench struct {
	Subject
	ctx    context.Context
	prefix string
}

var benches atomic.Int64

func newBench(t *testing.T, subject Subject) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	return &bench{Subject: subject, ctx: ctx, prefix: fmt.Sprintf("/suite%d", benches.Add(1))}
}

// replica is one Store with its tables, its injected faults, and the events that it has delivered.
type replica struct {
	*store.Store
	a, b   *store.Table[Record]
	faults *Faults
	seen   *recorder
}

// open returns a store on the subject's backend; it is closed when the test ends.
func (b *bench) open(t *testing.T) *replica {
	t.Helper()
	r := &replica{
		a:      store.NewTable[Record]("a"),
		b:      store.NewTable[Record]("b"),
		faults: NewFaults(b.Backend),
		seen:   newRecorder(),
	}
	s, err := store.Open(b.ctx, r.faults, b.options(t, r))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.faults.Mend()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if broken := r.faults.Broken(); len(broken) > 0 {
			t.Errorf("the committer broke its promises: %v", broken)
		}
	})
	r.Store = s
	s.Subscribe(r.seen.add)
	return r
}

func (b *bench) options(t *testing.T, r *replica) store.Options {
	return store.Options{
		Prefix: b.prefix,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Tables: []store.AnyTable{r.a, r.b},
	}
}

// key is the backend key of a record of the first table.
func (b *bench) key(id string) string { return b.prefix + "/v1/a/" + id }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition that another goroutine satisfies.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// contents copies a table.
func contents(t *store.Table[Record]) map[string]Record {
	m := map[string]Record{}
	for id, r := range t.All() {
		m[id] = *r
	}
	return m
}
