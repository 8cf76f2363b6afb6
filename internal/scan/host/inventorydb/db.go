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
	IdleTimeout time.Duration // without use until the file is closed; 0 is 2 s
	OnOpen      func()        // called when the file was opened; may be nil, as OnClose may
	OnClose     func()        // called when the file was closed: alternates with OnOpen
}

// DB is an open inventory. It is safe for concurrent use; write transactions wait for each other.
type DB struct {
	opts      Options
	file      *dbFile
	lockFile  *os.File
	writeMu   sync.Mutex             // held by the one write transaction, until its totals are published
	totals    atomic.Pointer[totals] // after the last transaction
	decided   atomic.Uint64          // findings that owners decide, likewise
	fileSize  atomic.Int64
	closeOnce sync.Once
	closeErr  error
}

// Open opens or creates an inventory. It fails with ErrDamaged for a damaged one: Repair moves that
// aside.
func Open(o Options) (*DB, error) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 2 * time.Second
	}
	held, err := acquireLock(o.Path)
	if err != nil {
		return nil, err
	}
	l := &DB{opts: o, lockFile: held}
	l.initFile()
	if err := l.prepareTables(); err != nil {
		if !errors.Is(err, ErrDamaged) {
			return nil, errors.Join(err, l.Close())
		}
		return l, err
	}
	return l, nil
}

func (l *DB) initFile() {
	f := &dbFile{path: l.opts.Path, idleTimeout: l.opts.IdleTimeout, onOpen: l.opts.OnOpen, onClose: l.opts.OnClose}
	f.idleTimer = time.AfterFunc(time.Hour, f.closeIdle)
	f.idleTimer.Stop()
	l.file = f
	l.totals.Store(&totals{})
}

// prepareTables creates the tables of a new file, and reads the totals.
func (l *DB) prepareTables() error {
	return l.update(func(*tx) error { return nil })
}

// Repair moves a damaged file aside and creates a new one. It returns the new name of the old one.
// Files moved aside before are removed, so that a disk which damages files does not fill up with
// them.
func (l *DB) Repair(now time.Time) (string, error) {
	l.writeMu.Lock()
	aside := l.opts.Path + damagedInfix + now.UTC().Format("20060102T150405.000Z")
	err := l.file.replace(func() error { return os.Rename(l.opts.Path, aside) })
	l.totals.Store(&totals{})
	l.decided.Store(0)
	l.writeMu.Unlock()
	if err != nil {
		return "", fmt.Errorf("move the damaged inventory aside: %w", err)
	}
	l.removeDamaged(aside)
	return aside, l.prepareTables()
}

// damagedInfix follows the path of a file in the names of those that were moved aside.
const damagedInfix = ".damaged-"

// removeDamaged removes all files moved aside except one. A file that cannot be removed stays: a
// working inventory matters more.
func (l *DB) removeDamaged(but string) {
	dir, name := filepath.Split(l.opts.Path)
	list, _ := os.ReadDir(cmp.Or(dir, "."))
	for _, e := range list {
		if path := dir + e.Name(); path != but && strings.HasPrefix(e.Name(), name+damagedInfix) {
			_ = os.Remove(path)
		}
	}
}

// Close closes the file and releases the lock.
func (l *DB) Close() error {
	l.closeOnce.Do(func() { l.closeErr = errors.Join(l.file.close(), l.lockFile.Close()) })
	return l.closeErr
}

// totals are the numbers that every transaction updates.
type totals struct {
	resetCount                uint64 // incremented by every reset
	nextPackageID, nextFileID uint64
	files, packages, findings uint64
	refused                   uint64 // packages dropped at a limit since the last reset
	matchedWith               DatabaseID
}

func (n *totals) append(b []byte) []byte {
	for _, v := range []uint64{
		n.resetCount, n.nextPackageID, n.nextFileID, n.files, n.packages, n.findings,
		n.refused,
	} {
		b = binary.AppendUvarint(b, v)
	}
	return binary.AppendUvarint(appendTime(b, n.matchedWith.Built), uint64(n.matchedWith.Size))
}

func readTotals(b []byte) (totals, error) {
	r := recordReader{data: b}
	n := totals{
		resetCount: r.uvarint(), nextPackageID: r.uvarint(), nextFileID: r.uvarint(),
		files: r.uvarint(), packages: r.uvarint(), findings: r.uvarint(), refused: r.uvarint(),
		matchedWith: DatabaseID{Built: r.time(), Size: int64(r.uvarint())},
	}
	return n, r.finish()
}

// Totals are the numbers of the contents.
type Totals struct {
	Files, Packages, Findings int
	OwnerDecided              int        // findings left out because advisories about the owner of the package decide
	Refused                   int        // packages dropped at a limit since the last reset
	Bytes                     int64      // of the file
	Matched                   DatabaseID // that all packages were compared with
}

// DatabaseID identifies a vulnerability database. The size distinguishes two of the same date, which
// is that of the newest advisory in it.
type DatabaseID struct {
	Built time.Time
	Size  int64 // bytes
}

// Equals reports whether two are the same.
func (d DatabaseID) Equals(other DatabaseID) bool {
	return d.Size == other.Size && d.Built.Equal(other.Built)
}

// Totals returns the numbers of the contents. It reads no file.
func (l *DB) Totals() Totals {
	n := l.totals.Load()
	return Totals{
		Files: int(n.files), Packages: int(n.packages), Findings: int(n.findings), Refused: int(n.refused),
		OwnerDecided: int(l.decided.Load()), Bytes: l.fileSize.Load(), Matched: n.matchedWith,
	}
}

// The tables.
var (
	metaTable          = []byte("meta")     // schema and totals
	fileTable          = []byte("files")    // path -> fileRecord
	pathTable          = []byte("paths")    // number of a file -> path
	packageTable       = []byte("packages") // number -> packageRecord
	nameTable          = []byte("names")    // identity -> number of a package
	locationTable      = []byte("places")   // numbers of a package and a file -> what that file adds to the package
	findingTable       = []byte("findings") // number of a package, ID of a vulnerability -> time of discovery, finding
	awaitingMatchTable = []byte("unjudged") // number of a package -> transaction that added it
	ownerDecidedTable  = []byte("decided")  // number of a package -> findings that the advisories of its owner decide

	// a reset empties them
	reportTables = [][]byte{pathTable, packageTable, nameTable, locationTable, findingTable, awaitingMatchTable}
	tables       = append([][]byte{metaTable, fileTable}, reportTables...)

	schemaKey = []byte("schema")
	totalsKey = []byte("totals")
)

// tx is a transaction with its tables.
type tx struct {
	*bbolt.Tx
	files, paths, packages, names, locations, findings, awaitingMatch *bbolt.Bucket
	ownerDecided                                                      *bbolt.Bucket // nil: it has none yet
	ownerDecidedSum, startOwnerDecidedSum                             uint64
	totals                                                            totals
	startTotals                                                       totals
	limitReached                                                      bool // no new package fits
}

// update runs a write transaction, and stores the totals.
func (l *DB) update(do func(*tx) error) error {
	var after totals
	var size int64
	var decided uint64
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	err := l.file.update(func(b *bbolt.Tx) error {
		if err := createTables(b); err != nil {
			return err
		}
		t, err := l.openTables(b)
		if err != nil {
			return err
		}
		if err := do(t); err != nil {
			return err
		}
		after, size, decided = t.totals, b.Size(), t.ownerDecidedSum
		if err := t.saveOwnerDecided(b.Bucket(metaTable)); err != nil {
			return err
		}
		if t.totals == t.startTotals {
			return nil
		}
		return b.Bucket(metaTable).Put(totalsKey, t.totals.append(nil))
	})
	if err != nil {
		return err
	}
	l.totals.Store(&after)
	l.decided.Store(decided)
	l.fileSize.Store(size)
	return nil
}

// view runs a read transaction.
func (l *DB) view(do func(*tx) error) error {
	return l.file.view(func(b *bbolt.Tx) error {
		t, err := l.openTables(b)
		if err != nil {
			return err
		}
		return do(t)
	})
}

// createTables creates the tables of a new file.
func createTables(b *bbolt.Tx) error {
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
	first := totals{resetCount: 1, nextPackageID: 1, nextFileID: 1}
	return meta.Put(totalsKey, first.append(nil))
}

// openTables opens the tables, and checks that this program wrote them.
func (l *DB) openTables(b *bbolt.Tx) (*tx, error) {
	t := &tx{Tx: b}
	meta := b.Bucket(metaTable)
	for name, into := range map[string]**bbolt.Bucket{
		string(fileTable): &t.files, string(pathTable): &t.paths, string(packageTable): &t.packages,
		string(nameTable):     &t.names,
		string(locationTable): &t.locations, string(findingTable): &t.findings,
		string(awaitingMatchTable): &t.awaitingMatch,
	} {
		if *into = b.Bucket([]byte(name)); *into == nil || meta == nil {
			return nil, fmt.Errorf("%w: table %s is missing", ErrDamaged, name)
		}
	}
	if s := meta.Get(schemaKey); len(s) != 1 || s[0] != schema {
		return nil, fmt.Errorf("%w: it has schema %v, this program supports %d", ErrDamaged, s, schema)
	}
	var err error
	t.totals, err = readTotals(meta.Get(totalsKey))
	t.startTotals = t.totals
	if err == nil {
		err = t.openOwnerDecided(meta)
	}
	t.limitReached = t.totals.packages >= uint64(l.opts.MaxPackages) || b.Size() > l.opts.MaxBytes
	return t, err
}

// SetMatched records that all packages were compared with a database.
func (l *DB) SetMatched(d DatabaseID) error {
	return l.update(func(t *tx) error {
		t.totals.matchedWith = d
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
		if err := t.DeleteBucket(ownerDecidedTable); err != nil {
			return err
		}
		if _, err := t.CreateBucket(ownerDecidedTable); err != nil {
			return err
		}
		t.ownerDecidedSum = 0
		t.totals.resetCount++
		t.totals.packages, t.totals.findings, t.totals.refused = 0, 0, 0
		return nil
	})
}
