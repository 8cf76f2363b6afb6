// Package recordfile writes records of an etcd into a file of the form of an etcd snapshot, without
// the rights that a snapshot needs.
//
// It is not a copy of a member: the file has the latest revision of each record that it was given, no
// history, no users, no leases and no members of a cluster. etcd's tools restore it like a snapshot.
//
// Invariant: a file that Write has completed is a database whose records have their revisions,
// followed by its SHA-256.
package recordfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// The buckets of etcd's database that a restore needs, and the values that it reads in meta.
const (
	recordBucket = "key"
	metaBucket   = "meta"
	indexKey     = "consistent_index"
	termKey      = "term"

	fileMode    = 0o600
	openTimeout = 10 * time.Second // for the lock on the file, which no other process has
)

// Write writes the records that each passes to add, page by page, into a new file, or one that is
// empty. No record may occur twice. The file is complete only when Write returns nil.
func Write(path string, each func(add func([]*mvccpb.KeyValue) error) error) error {
	db, err := bbolt.Open(path, fileMode, &bbolt.Options{NoSync: true, Timeout: openTimeout})
	if err != nil {
		return fmt.Errorf("create a database: %w", err)
	}
	w := &writer{db: db, nextSub: map[int64]int64{}}
	err = w.writeMeta()
	if err == nil {
		err = each(w.addPage)
	}
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	return appendChecksum(path)
}

type writer struct {
	db      *bbolt.DB
	nextSub map[int64]int64 // revision -> number of records that it has so far
}

// writeMeta creates the buckets. A restore replaces the index and the term; without a term the version
// of the database is unknown to etcd.
func (w *writer) writeMeta() error {
	return w.db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(recordBucket)); err != nil {
			return err
		}
		meta, err := tx.CreateBucket([]byte(metaBucket))
		if err != nil {
			return err
		}
		one := binary.BigEndian.AppendUint64(nil, 1)
		return errors.Join(meta.Put([]byte(indexKey), one), meta.Put([]byte(termKey), one))
	})
}

// addPage adds records in one transaction. Those of one revision are numbered as they come.
func (w *writer) addPage(page []*mvccpb.KeyValue) error {
	return w.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(recordBucket))
		for _, kv := range page {
			value, err := proto.Marshal(kv)
			if err != nil {
				return fmt.Errorf("encode record %q: %w", kv.GetKey(), err)
			}
			sub := w.nextSub[kv.GetModRevision()]
			w.nextSub[kv.GetModRevision()]++
			if err := bucket.Put(revisionKey(kv.GetModRevision(), sub), value); err != nil {
				return fmt.Errorf("store record %q: %w", kv.GetKey(), err)
			}
		}
		return nil
	})
}

// revisionKey returns the key of a record: its revision and its number within that.
func revisionKey(main, sub int64) []byte {
	key := binary.BigEndian.AppendUint64(nil, uint64(main))
	key = append(key, '_')
	return binary.BigEndian.AppendUint64(key, uint64(sub))
}

// appendChecksum writes the SHA-256 of a file behind its content, and syncs it.
func appendChecksum(path string) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if _, err := file.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return file.Sync()
}
