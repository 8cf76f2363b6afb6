package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
)

const (
	orderFile  = "order.json"  // makes the directory an entry; contains a script, hence mode 0600
	statusFile = "status.json" // replaced by rename
	maxFile    = 64 << 20      // bytes of a journal file that Load reads

	damagedPrefix = ".damaged-" // no ID begins with a dot
)

// The durable steps, in the order in which Accept, Save and Remove take them.
// Options.Step sees each before it is taken.
const (
	StepWrite  = "write"  // bytes to a temporary file
	StepSync   = "sync"   // fsync of the file
	StepRename = "rename" // to its final name
	StepDir    = "dir"    // fsync of the directory
	StepRemove = "remove" // unlink of the order
)

// Options configure a Dir.
type Options struct {
	Logger *slog.Logger // nil: no log
	// BeforeStep is called before every durable step with its name; an error ends the operation there.
	// Tests use it to stop between two steps. nil: not called.
	BeforeStep func(step string) error
	// SyncFile replaces fsync of an open file or directory in tests. nil: fsync.
	SyncFile func(*os.File) error
	// ReserveBytes is the number of bytes set aside for when the disk is full; 0: none. While they
	// cannot be set aside, no start order is accepted.
	ReserveBytes int64
}

// Dir is a journal in a directory: <dir>/<instance id>/{order.json,status.json}. It may be used
// from many goroutines, but by one at a time for one instance.
type Dir struct {
	root       *os.Root
	log        *slog.Logger
	beforeStep func(string) error
	syncFile   func(*os.File) error
	reserve    diskReserve
}

// Open opens or creates the directory. The caller holds the lock of the node's data directory,
// which keeps a second agent out.
func Open(dir string, o Options) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	d := &Dir{
		root: root, log: o.Logger, beforeStep: o.BeforeStep, syncFile: o.SyncFile,
		reserve: diskReserve{root: root, sizeBytes: o.ReserveBytes},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.beforeStep == nil {
		d.beforeStep = func(string) error { return nil }
	}
	if d.syncFile == nil {
		d.syncFile = (*os.File).Sync
	}
	if err := d.syncParent(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal: %w", err), root.Close())
	}
	d.refillReserve()
	return d, nil
}

// Close releases the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Load returns every entry, ordered by instance ID. It removes what an interrupted Accept or Remove
// left behind. An unreadable entry is quarantined under the name .damaged-<id> and logged, never
// dropped.
func (d *Dir) Load() ([]Entry, error) { return d.loadEntries(true) }

// LoadReadOnly is Load without changing anything, for a reader concurrent with a running agent.
func (d *Dir) LoadReadOnly() ([]Entry, error) { return d.loadEntries(false) }

func (d *Dir) loadEntries(repair bool) ([]Entry, error) {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	var out []Entry
	for _, item := range list {
		id := item.Name()
		if !item.IsDir() || CheckID(id) != nil {
			continue
		}
		e, err := d.readEntry(id)
		switch {
		case err == nil:
			out = append(out, e)
		case !repair:
		case errors.Is(err, fs.ErrNotExist):
			if err := d.root.RemoveAll(id); err != nil {
				return nil, fmt.Errorf("remove incomplete journal entry: %w", err)
			}
		default:
			d.log.Error("unreadable journal entry moved aside", "instance_id", id, "error", err)
			if err := d.root.Rename(id, damagedPrefix+id); err != nil {
				return nil, fmt.Errorf("move unreadable journal entry aside: %w", err)
			}
		}
	}
	return out, nil
}

func (d *Dir) readEntry(id string) (Entry, error) {
	var e Entry
	var o storedOrder
	if err := d.readJSON(path.Join(id, orderFile), &o); err != nil {
		return Entry{}, err
	}
	e.NodeID, e.Order = o.Node, o.Order
	if e.Order.InstanceID != id {
		return Entry{}, fmt.Errorf("journal entry %s has an order for instance %q", id, e.Order.InstanceID)
	}
	err := d.readJSON(path.Join(id, statusFile), &e.State)
	if errors.Is(err, fs.ErrNotExist) {
		// Accept writes the state first, so this is damage and not an interrupted step.
		err = fmt.Errorf("journal entry %s has no state file", id)
	}
	return e, err
}

// storedOrder is the content of an order file.
type storedOrder struct {
	api.Order
	Node string `json:"node,omitempty"`
}

func (d *Dir) readJSON(name string, into any) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return err
	}
	return decode(raw, into)
}

// Accept creates an entry, completely or not at all: the order file makes it an entry, and it is
// renamed last. A start is refused while the disk has no free space in addition to the reserve; an
// end may use the reserve.
func (d *Dir) Accept(e Entry) error {
	if err := CheckID(e.Order.InstanceID); err != nil {
		return err
	}
	if e.State.Ending {
		return d.withReserve(func() error { return d.acceptOnce(e) })
	}
	if err := d.reserve.fill(); err != nil {
		return fmt.Errorf("accept order: %w", err)
	}
	return d.acceptOnce(e)
}

func (d *Dir) acceptOnce(e Entry) error {
	id := e.Order.InstanceID
	if err := d.root.MkdirAll(id, 0o700); err != nil {
		return fmt.Errorf("accept order: %w", err)
	}
	if err := d.saveOnce(id, e.State); err != nil {
		return err
	}
	if err := d.writeJSON(path.Join(id, orderFile), storedOrder{e.Order, e.NodeID}); err != nil {
		return fmt.Errorf("accept order: %w", err)
	}
	if err := d.syncDir("."); err != nil {
		return fmt.Errorf("accept order: %w", err)
	}
	return nil
}

// Save replaces the state of an entry. As with a start, a task is refused while the disk has no
// free space in addition to the reserve.
func (d *Dir) Save(id string, s State) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if s.Task != nil && s.Task.Stage == api.TaskAccepted && s.Task.Failure == nil && !s.Ending {
		if err := d.reserve.fill(); err != nil {
			return fmt.Errorf("write state of instance %s: %w", id, err)
		}
		return d.saveOnce(id, s)
	}
	return d.withReserve(func() error { return d.saveOnce(id, s) })
}

func (d *Dir) saveOnce(id string, s State) error {
	s.Number += numbersPerSave
	if err := d.writeJSON(path.Join(id, statusFile), s); err != nil {
		return fmt.Errorf("write state of instance %s: %w", id, err)
	}
	return nil
}

// Remove removes an entry; removing an unknown one succeeds.
func (d *Dir) Remove(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if err := d.beforeStep(StepRemove); err != nil {
		return err
	}
	err := d.root.Remove(path.Join(id, orderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d.root.RemoveAll(id)
	}
	if err != nil {
		return fmt.Errorf("remove journal entry: %w", err)
	}
	if err := d.syncDir(id); err != nil {
		return fmt.Errorf("remove journal entry: %w", err)
	}
	err = d.root.RemoveAll(id)
	d.refillReserve() // the VM has been removed by now, so there is free space
	return err
}

// writeJSON replaces a file so that a reader after a crash finds the old or the new one.
func (d *Dir) writeJSON(name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := d.beforeStep(StepWrite); err != nil {
		return err
	}
	temp := name + ".new"
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(raw); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := d.beforeStep(StepSync); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(d.syncFile(f), f.Close()); err != nil {
		return err
	}
	if err := d.beforeStep(StepRename); err != nil {
		return err
	}
	if err := d.root.Rename(temp, name); err != nil {
		return err
	}
	return d.syncDir(path.Dir(name))
}

func (d *Dir) syncDir(name string) error {
	if err := d.beforeStep(StepDir); err != nil {
		return err
	}
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.syncFile(f), f.Close())
}

// syncParent makes the journal's own name durable.
func (d *Dir) syncParent(dir string) error {
	f, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.syncFile(f), f.Close())
}

// ReadEntries returns the entries in dir without opening the journal; a missing directory is an empty
// journal.
func ReadEntries(dir string) ([]Entry, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	d := &Dir{root: root, log: slog.New(slog.DiscardHandler)}
	defer d.Close() //nolint:errcheck // read only
	return d.LoadReadOnly()
}

// RemovalState returns the state of an instance that the node only has to remove.
func RemovalState(o api.Order) State {
	return State{Claim: o.Claim, Phase: api.PhaseAccepted, Ending: true}
}
