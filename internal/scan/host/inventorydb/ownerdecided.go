package inventorydb

import (
	"encoding/binary"

	"go.etcd.io/bbolt"
)

// ownerDecidedKey is the sum of the table, in the table of the schema.
var ownerDecidedKey = []byte("decided")

// openOwnerDecided opens the table of the findings that were left out because advisories about the owner of a package
// decide. A file of an earlier version lacks it until the first change.
func (t *tx) openOwnerDecided(meta *bbolt.Bucket) (err error) {
	t.ownerDecided = t.Bucket(ownerDecidedTable)
	if t.ownerDecided == nil && t.Writable() {
		t.ownerDecided, err = t.CreateBucket(ownerDecidedTable)
	}
	if b := meta.Get(ownerDecidedKey); b != nil && err == nil {
		r := recordReader{data: b}
		t.ownerDecidedSum = r.uvarint()
		err = r.finish()
	}
	t.startOwnerDecidedSum = t.ownerDecidedSum
	return err
}

// setOwnerDecided sets the number of a package.
func (t *tx) setOwnerDecided(id, n uint64) error {
	if b := t.ownerDecided.Get(numberKey(id)); b != nil {
		r := recordReader{data: b}
		t.ownerDecidedSum -= min(r.uvarint(), t.ownerDecidedSum)
		if err := r.finish(); err != nil {
			return err
		}
	}
	t.ownerDecidedSum += n
	if n == 0 {
		return t.ownerDecided.Delete(numberKey(id))
	}
	return t.ownerDecided.Put(numberKey(id), binary.AppendUvarint(nil, n))
}

// saveOwnerDecided stores the sum.
func (t *tx) saveOwnerDecided(meta *bbolt.Bucket) error {
	if t.ownerDecidedSum == t.startOwnerDecidedSum {
		return nil
	}
	return meta.Put(ownerDecidedKey, binary.AppendUvarint(nil, t.ownerDecidedSum))
}
