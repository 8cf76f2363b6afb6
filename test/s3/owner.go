package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/s3store"
)

// caseOwner: a second registry is refused; one that waits takes the bucket over when the owner is killed.
func caseOwner(ctx context.Context, s *stage) (string, error) {
	first, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	d, err := s.makeDisk(60, smallDisk)
	if err != nil {
		return "", err
	}
	if err := first.push(ctx, idA, "v1", d); err != nil {
		return "", err
	}
	second, err := s.prepare(ctx, "two", "s3", nil)
	if err != nil {
		return "", err
	}
	if err := second.startAndWait(ctx); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "is in use") {
		return "", fmt.Errorf("a second registry: %w", err)
	}
	standby, err := s.prepare(ctx, "three", "s3", map[string]string{"SVC_BACKEND_S3_STANDBY": "true"})
	if err != nil {
		return "", err
	}
	if err := standby.process.Start(); err != nil {
		return "", err
	}
	for began := time.Now(); time.Since(began) < 2*lease; time.Sleep(100 * time.Millisecond) {
		if standby.isReady(ctx) == nil || !standby.process.Running() {
			return "", errors.New("the waiting registry serves, or has ended")
		}
	}
	if err := first.process.Kill(); err != nil {
		return "", err
	}
	began := time.Now()
	if err := standby.waitReady(ctx); err != nil {
		return "", err
	}
	took := time.Since(began)
	if err := s.checkAll(ctx, standby, idA, map[string]diskFile{"v1": d}); err != nil {
		return "", err
	}
	return fmt.Sprintf("second refused; waiting one serves %.1f s after kill -9, lease %s", took.Seconds(), lease),
		standby.push(ctx, idA, "v2", d)
}

// caseFrozen: an owner that was stopped until another registry owned the bucket ends when it continues, and changes
// nothing.
func caseFrozen(ctx context.Context, s *stage) (string, error) {
	first, err := s.start(ctx, "one", "s3", nil)
	if err != nil {
		return "", err
	}
	d, err := s.makeDisk(61, smallDisk)
	if err != nil {
		return "", err
	}
	if err := first.push(ctx, idA, "v1", d); err != nil {
		return "", err
	}
	if err := syscall.Kill(first.process.PID(), syscall.SIGSTOP); err != nil {
		return "", err
	}
	second, err := s.start(ctx, "two", "s3", nil) // waits for the lease
	if err != nil {
		return "", errors.Join(err, syscall.Kill(first.process.PID(), syscall.SIGCONT))
	}
	if err := second.push(ctx, idA, "v2", d); err != nil {
		return "", err
	}
	s.proxy.takeRequests()
	if err := syscall.Kill(first.process.PID(), syscall.SIGCONT); err != nil {
		return "", err
	}
	stale := first.push(ctx, idA, "stale", d)
	err = waitUntil(ctx, startLimit, func() error {
		if first.process.Running() {
			return errors.New("the old owner runs")
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if stale == nil {
		return "", errors.New("the old owner acknowledged a push")
	}
	return "the old owner ended: " + lastLine(first.process.Tail()),
		s.checkAll(ctx, second, idA, map[string]diskFile{"v1": d, "v2": d})
}

// raceRounds is how often registries race for the lease.
const raceRounds = 30

// caseRace: of several registries that take the lease at one time, with delayed bodies, one gets it.
func caseRace(ctx context.Context, s *stage) (string, error) {
	var mu sync.Mutex
	s.proxy.setRule(func(r *http.Request) action {
		if r.Method != http.MethodPut {
			return action{}
		}
		mu.Lock()
		defer mu.Unlock()
		return action{delayBody: time.Duration(s.rnd.IntN(30)) * time.Millisecond}
	})
	const writers = 8
	owners := 0
	for round := range raceRounds {
		n, err := s.raceOnce(ctx, round, writers)
		if err != nil {
			return "", err
		}
		if owners += n; n != 1 {
			return "", fmt.Errorf("round %d has %d owners", round, n)
		}
	}
	return fmt.Sprintf("%d races of %d registries with delayed bodies: %d owners", raceRounds, writers, owners), nil
}

// raceOnce lets registries take a lease that was released, and returns how many own it then.
func (s *stage) raceOnce(ctx context.Context, round, writers int) (owners int, err error) {
	leases := make([]*s3store.Lease, writers)
	group, ctx := errgroup.WithContext(ctx)
	for i := range writers {
		group.Go(func() error {
			b, err := s.bucket(s.proxy.url())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, lease/2) // no other one may follow
			defer cancel()
			l, err := b.Acquire(ctx, s3store.Owner{ID: fmt.Sprintf("racer-%d-%d", round, i), Host: "race"})
			if err == nil {
				leases[i] = l
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for _, l := range leases {
		if l == nil {
			continue
		}
		if err := l.Confirm(context.WithoutCancel(ctx)); err != nil {
			return owners, err
		}
		owners++
		if err := l.Release(context.WithoutCancel(ctx)); err != nil {
			return owners, err
		}
	}
	return owners, nil
}
