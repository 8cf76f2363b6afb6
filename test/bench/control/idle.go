package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// fewIdle measures 1,000 nodes that have nothing to do.
func (b *bench) fewIdle(ctx context.Context, s *stage) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	u, err := s.usage(ctx, idle)
	if err != nil {
		return err
	}
	b.Add(rowFewMemory, u.memory)
	b.Add(rowFewCPU, 100*u.cpu)
	b.Say("%d idle nodes: %.0f MB, %.2f %% CPU", few, u.memory, 100*u.cpu)
	return nil
}

// manyIdle measures 10,000 nodes that have nothing to do, and what is written for them.
func (b *bench) manyIdle(ctx context.Context, s *stage) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	first, err := s.revision(ctx)
	if err != nil {
		return err
	}
	u, err := s.usage(ctx, idle)
	if err != nil {
		return err
	}
	last, err := s.revision(ctx)
	if err != nil {
		return err
	}
	b.Add(rowManyMemory, u.memory)
	b.Add(rowManyCPU, 100*u.cpu)
	b.Add(rowManyWrites, float64(last-first))
	b.Say("%d idle nodes: %.0f MB, %.2f %% CPU, %d writes", many, u.memory, 100*u.cpu, last-first)
	return nil
}

// revision reads the revision of the server's store from a copy of its database: the
// file itself is locked. A copy that was made while the server wrote may be torn; then
// another one is made.
func (s *stage) revision(ctx context.Context) (rev int64, err error) {
	from := filepath.Join(s.dir, "controller", "store", "etcd", "member", "snap", "db")
	to := filepath.Join(s.dir, "copy.db")
	for range 20 {
		if err := copyFile(from, to); err != nil {
			return 0, err
		}
		if rev, err = lastRevision(to); err == nil {
			return rev, nil
		}
		if err := pause(ctx, glance); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("read the revision of the store: %w", err)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}

// lastRevision returns the greatest revision in a database of etcd: the keys of its
// bucket «key» are revisions, big-endian.
func lastRevision(path string) (rev int64, err error) {
	defer func() {
		if p := recover(); p != nil { // how bbolt meets a torn file
			err = fmt.Errorf("the copy is torn: %v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	return rev, db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return fmt.Errorf("the database has no keys")
		}
		key, _ := bucket.Cursor().Last()
		if len(key) < 8 {
			return fmt.Errorf("the last key is %x", key)
		}
		rev = int64(binary.BigEndian.Uint64(key))
		return nil
	})
}
