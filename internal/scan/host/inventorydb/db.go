package inventorydb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

// schema is the version of the file format. A file with another one is moved aside: a full scan
// creates it again.
const schema = 2

// Options configure the inventory.
type Options struct {
	Path        string
	MaxPackages int           // limit of packages
	MaxBytes    int64         // of the file, about
	Rest        time.Duration // without use until the file is closed; 0 is 2 s
	OnUse       func()        // called when the file was opened; may be nil, as OnRest may
	OnRest      func()        // called when the file was closed: alternates with OnUse
}

// DB is an open inventory. It is safe for concurrent use; write transactions wait for each other.
type DB struct {
	o      Options
	file   *file
	lock   *os.File
	writes sync.Mutex             // held by the one write transaction, until its totals are published
	totals atomic.Pointer[totals] // after the last transaction
	size   atomic.Int64
	once   sync.Once
	closed error
}

// Open opens or creates an inventory. It fails with ErrDamaged for a damaged one: Repair moves that
// aside.
func Open(o Options) (*DB, error) {
	if o.Rest == 0 {
		o.Rest = 2 * time.Second
	}
	held, err := lock(o.Path)
	if err != nil {
		return nil, err
	}
	l := &DB{o: o, lock: held}
	l.start()
	if err := l.prepare(); err != nil {
		if !errors.Is(err, ErrDamaged) {
			return nil, errors.Join(err, l.Close())
		}
		return l, err
	}
	return l, nil
}

func (l *DB) start() {
	f := &file{path: l.o.Path, rest: l.o.Rest, use: l.o.OnUse, idle: l.o.OnRest}
	f.timer = time.AfterFunc(time.Hour, f.sleep)
	f.timer.Stop()
	l.file = f
	l.totals.Store(&totals{})
}

// prepare creates the tables of a new file, and reads the totals.
func (l *DB) prepare() error {
	return l.update(func(*tx) error { return nil })
}

// Repair moves a damaged file aside and creates a new one. It returns the new name of the old one.
// Files moved aside before are removed, so that a disk which damages files does not fill up with
// them.
func (l *DB) Repair(now time.Time) (string, error) {
	l.writes.Lock()
	aside := l.o.Path + damagedMark + now.UTC().Format("20060102T150405.000Z")
	err := l.file.replace(func() error { return os.Rename(l.o.Path, aside) })
	l.totals.Store(&totals{})
	l.writes.Unlock()
	if err != nil {
		return "", fmt.Errorf("setting the damaged inventory aside: %w", err)
	}
	l.removeDamaged(aside)
	return aside, l.prepare()
}

// damagedMark follows the path of a file in the names of those that were moved aside.
const damagedMark = ".damaged-"

// removeDamaged removes all files moved aside except one. A file that cannot be removed stays: a
// working inventory matters more.
func (l *DB) removeDamaged(but string) {
	folder, name := filepath.Split(l.o.Path)
	list, _ := os.ReadDir(cmp.Or(folder, "."))
	for _, e := range list {
		if path := folder + e.Name(); path != but && strings.HasPrefix(e.Name(), name+damagedMark) {
			_ = os.Remove(path)
		}
	}
}

// Close closes the file and releases the lock.
func (l *DB) Close() error {
	l.once.Do(func() { l.closed = errors.Join(l.file.end(), l.lock.Close()) })
	return l.closed
}

// totals are the numbers that every transaction updates.
type totals struct {
	era                       uint64 // incremented by every reset
	nextPackage, nextFile     uint64
	files, packages, findings uint64
	refused                   uint64 // packages dropped at a limit since the last reset
	judged                    Database
}

func (n *totals) append(b []byte) []byte {
	for _, v := range []uint64{n.era, n.nextPackage, n.nextFile, n.files, n.packages, n.findings, n.refused} {
		b = binary.AppendUvarint(b, v)
	}
	return binary.AppendUvarint(appendTime(b, n.judged.Built), uint64(n.judged.Size))
}

func readTotals(b []byte) (totals, error) {
	r := reader{b: b}
	n := totals{
		era: r.uvarint(), nextPackage: r.uvarint(), nextFile: r.uvarint(),
		files: r.uvarint(), packages: r.uvarint(), findings: r.uvarint(), refused: r.uvarint(),
		judged: Database{Built: r.time(), Size: int64(r.uvarint())},
	}
	return n, r.end()
}

// Totals are the numbers of the contents.
type Totals struct {
	Files, Packages, Findings int
	Refused                   int      // packages dropped at a limit since the last reset
	Bytes                     int64    // of the file
	Matched                   Database // that all packages were compared with
}

// Database identifies a vulnerability database. The size distinguishes two of the same date, which
// is that of the newest advisory in it.
type Database struct {
	Built time.Time
	Size  int64 // bytes
}

// Is reports whether two are the same.
func (d Database) Is(other Database) bool { return d.Size == other.Size && d.Built.Equal(other.Built) }

// Totals returns the numbers of the contents. It reads no file.
func (l *DB) Totals() Totals {
	n := l.totals.Load()
	return Totals{
		Files: int(n.files), Packages: int(n.packages), Findings: int(n.findings), Refused: int(n.refused),
		Bytes: l.size.Load(), Matched: n.judged,
	}
}

// The tables.
var (
	metaTable     = []byte("meta")     // schema and totals
	fileTable     = []byte("files")    // path -> fileRecord
	pathTable     = []byte("paths")    // number of a file -> path
	packageTable  = []byte("packages") // number -> packageRecord
	nameTable     = []byte("names")    // identity -> number of a package
	placeTable    = []byte("places")   // numbers of a package and a file -> what that file adds to the package
	findingTable  = []byte("findings") // number of a package, ID of a vulnerability -> time of discovery, finding
	unjudgedTable = []byte("unjudged") // number of a package -> transaction that added it

	// a reset empties them
	reportTables = [][]byte{pathTable, packageTable, nameTable, placeTable, findingTable, unjudgedTable}
	tables       = append([][]byte{metaTable, fileTable}, reportTables...)

	schemaKey = []byte("schema")
	totalsKey = []byte("totals")
)

// tx is a transaction with its tables.
type tx struct {
	*bbolt.Tx
	files, paths, packages, names, places, findings, unjudged *bbolt.Bucket
	totals                                                    totals
	before                                                    totals
	full                                                      bool // no new package fits
}

// update runs a write transaction, and stores the totals.
func (l *DB) update(do func(*tx) error) error {
	var after totals
	var size int64
	l.writes.Lock()
	defer l.writes.Unlock()
	err := l.file.update(func(b *bbolt.Tx) error {
		if err := tablesOf(b); err != nil {
			return err
		}
		t, err := l.begin(b)
		if err != nil {
			return err
		}
		if err := do(t); err != nil {
			return err
		}
		after, size = t.totals, b.Size()
		if t.totals == t.before {
			return nil
		}
		return b.Bucket(metaTable).Put(totalsKey, t.totals.append(nil))
	})
	if err != nil {
		return err
	}
	l.totals.Store(&after)
	l.size.Store(size)
	return nil
}

// view runs a read transaction.
func (l *DB) view(do func(*tx) error) error {
	return l.file.view(func(b *bbolt.Tx) error {
		t, err := l.begin(b)
		if err != nil {
			return err
		}
		return do(t)
	})
}

// tablesOf creates the tables of a new file.
func tablesOf(b *bbolt.Tx) error {
	if b.Bucket(metaTable) != nil {
		return nil
	}
	for _, name := range tables {
		if _, err := b.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := b.Bucket(metaTable)
	if err := meta.Put(schemaKey, []byte{schema}); err != nil {
		return err
	}
	first := totals{era: 1, nextPackage: 1, nextFile: 1}
	return meta.Put(totalsKey, first.append(nil))
}

// begin opens the tables, and checks that this program wrote them.
func (l *DB) begin(b *bbolt.Tx) (*tx, error) {
	t := &tx{Tx: b}
	meta := b.Bucket(metaTable)
	for name, into := range map[string]**bbolt.Bucket{
		string(fileTable): &t.files, string(pathTable): &t.paths, string(packageTable): &t.packages,
		string(nameTable):  &t.names,
		string(placeTable): &t.places, string(findingTable): &t.findings, string(unjudgedTable): &t.unjudged,
	} {
		if *into = b.Bucket([]byte(name)); *into == nil || meta == nil {
			return nil, fmt.Errorf("%w: it lacks the table %s", ErrDamaged, name)
		}
	}
	if s := meta.Get(schemaKey); len(s) != 1 || s[0] != schema {
		return nil, fmt.Errorf("%w: it has the schema %v, this program reads %d", ErrDamaged, s, schema)
	}
	var err error
	t.totals, err = readTotals(meta.Get(totalsKey))
	t.before = t.totals
	t.full = t.totals.packages >= uint64(l.o.MaxPackages) || b.Size() > l.o.MaxBytes
	return t, err
}

// SetMatched records that all packages were compared with a database.
func (l *DB) SetMatched(d Database) error {
	return l.update(func(t *tx) error {
		t.totals.judged = d
		return nil
	})
}

// Reset removes all packages. Files that were read stay known, so that they are not mistaken for
// new ones.
func (l *DB) Reset() error {
	return l.update(func(t *tx) error {
		for _, name := range reportTables {
			if err := t.DeleteBucket(name); err != nil {
				return err
			}
			if _, err := t.CreateBucket(name); err != nil {
				return err
			}
		}
		t.totals.era++
		t.totals.packages, t.totals.findings, t.totals.refused = 0, 0, 0
		return nil
	})
}
