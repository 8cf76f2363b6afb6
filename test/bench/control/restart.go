package main

import (
	"context"
	"fmt"
	"time"
)

// restart measures how soon a server with many records is ready again.
func (b *bench) restart(ctx context.Context, s *stage) error {
	began := time.Now()
	var last string
	for range records / wholeRequest {
		ids, err := s.create(ctx, wholeRequest)
		if err != nil {
			return err
		}
		last = ids[len(ids)-1]
	}
	b.Say("made %d records in %.1f s", records, time.Since(began).Seconds())
	for range restarts {
		if err := s.cloud.End(); err != nil {
			return err
		}
		began := time.Now()
		if err := s.cloud.Boot(ctx); err != nil {
			return err
		}
		took := time.Since(began)
		if _, err := s.client.Get(ctx, last); err != nil {
			return fmt.Errorf("the last record after a restart: %w", err)
		}
		b.Add(rowRestart, took.Seconds())
		b.Say("ready after %.2f s", took.Seconds())
	}
	return nil
}
