package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// The content of etcd's database: a bucket for each kind. The keys of the records are revisions:
// eight bytes, a line, eight bytes, and a letter where the revision is a removal.
const (
	recordBucket    = "key"
	leaseBucket     = "lease"
	metaBucket      = "meta"
	revisionKeySize = 17
	deletionKeySize = revisionKeySize + 1
	numberSize      = 8
)

// metaSizes are the lengths of the values in the meta bucket that etcd reads as numbers and revisions.
var metaSizes = map[string]int{
	"consistent_index": numberSize, "term": numberSize,
	"scheduledCompactRev": revisionKeySize, "finishedCompactRev": revisionKeySize,
}

// inspectBackup reads a whole backup before etcd does. On a malformed one etcd faults or panics in its
// own goroutine, which ends the process.
func inspectBackup(path string) error {
	file, size, err := openWithSize(path)
	if err != nil {
		return fmt.Errorf("open backup file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := inspectDatabase(file, size-sha256.Size); err != nil {
		return fmt.Errorf("%s cannot be restored: %w; check that it was written by \"buildyard backup\"", path, err)
	}
	return nil
}

// inspectDatabase reads the database of a backup.
func inspectDatabase(file io.ReaderAt, length int64) error {
	c := dbContents{}
	if err := walkDatabase(file, length, c.checkPair); err != nil {
		return err
	}
	if !c.inRecordBucket {
		return malformed("it has no records")
	}
	return nil
}

// dbContents checks what is in the buckets of a database, in the order of their keys.
type dbContents struct {
	inRecordBucket bool
	lastRevision   []byte // revision
	appliedIndex   uint64 // index of the log's entry that was applied last
}

func (c *dbContents) checkPair(path []string, key, value []byte) error {
	if len(path) == 0 {
		return malformed("a value outside of any bucket")
	}
	if len(path) > 1 {
		return malformed("a bucket in bucket %q", path[0])
	}
	switch path[0] {
	case recordBucket:
		return c.checkRecord(key, value)
	case leaseBucket:
		if len(key) != numberSize {
			return malformed("a lease with an id of %d bytes", len(key))
		}
	case metaBucket:
		if want, known := metaSizes[string(key)]; known && len(value) != want {
			return malformed("%s has %d bytes", key, len(value))
		}
		if string(key) == "consistent_index" {
			c.appliedIndex = decodeUint64(value)
		}
	}
	return nil
}

// checkRecord checks one revision of a record. They must grow: etcd panics at one that does not.
func (c *dbContents) checkRecord(key, value []byte) error {
	c.inRecordBucket = true
	removal := len(key) == deletionKeySize
	if !removal && len(key) != revisionKeySize || removal && key[revisionKeySize] != 't' || key[numberSize] != '_' {
		return malformed("a revision of %d bytes", len(key))
	}
	rev := key[:revisionKeySize]
	if rev[0]&0x80 != 0 || rev[numberSize+1]&0x80 != 0 || bytes.Compare(c.lastRevision, rev) >= 0 {
		return malformed("revisions out of order")
	}
	c.lastRevision = bytes.Clone(rev)
	if len(value) == 0 {
		return nil // a restore leaves an empty one, to set the revision
	}
	var kv mvccpb.KeyValue
	main := binary.BigEndian.Uint64(rev)
	if err := proto.Unmarshal(value, &kv); err != nil || len(kv.Key) == 0 {
		return malformed("the record of revision %d cannot be read", main)
	}
	if !removal && (kv.ModRevision != int64(main) || kv.CreateRevision < 1 || kv.CreateRevision > kv.ModRevision ||
		kv.Version < 1) {
		return malformed("the record of revision %d has another revision", main)
	}
	return nil
}
