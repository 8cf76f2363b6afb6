package host

import (
	"context"
	"errors"
	"time"
)

// What callers are refused; errors.Is finds them.
var (
	ErrBusy    = errors.New("a full scan is running: wait for its end or stop it")
	ErrPath    = errors.New("the path cannot be scanned")
	ErrDamaged = errors.New("the catalogue is damaged")
	ErrClosed  = errors.New("the host scanner is closed")
	ErrInUse   = errors.New("another host scanner uses the catalogue")
)

// Host is the scanner of this machine. All methods may be called by several goroutines.
type Host struct{}

// settling is how long a file must be quiet before it is read.
type settling struct{ quiet, most time.Duration }

// Open opens the catalogue. One that is damaged is set aside, and the status says so.
func Open(Options) (*Host, error) { return nil, ErrClosed }

// Run goes on where the last process ended, keeps the database up to date, and works
// until ctx ends; it is called once. It ends without an error when ctx does.
func (h *Host) Run(context.Context) error { return ErrClosed }

// Close ends everything that runs, without changing what the next process goes on with.
func (h *Host) Close() error { return nil }

// Scan is an order for a full scan.
type Scan struct {
	Path         string // folder, absolute; "" is the whole host
	ThenRealTime bool   // real-time scanning of Path follows
}

// FullScan begins a full scan, and gives the state: RunningFull. While one runs it is
// refused with ErrBusy; a path that is no folder with ErrPath.
func (h *Host) FullScan(Scan) (State, error) { return Idle, ErrClosed }

// StartRealTime begins real-time scanning. With a path it is restricted to that, begins
// with a full scan of it and gives RunningFull.
func (h *Host) StartRealTime(string) (State, error) { return Idle, ErrClosed }

// Stop cancels a full scan, ends real-time scanning, and returns when everything that was
// noticed is catalogued and judged. When ctx ends first, it gives its error and the work
// goes on.
func (h *Host) Stop(context.Context) (State, error) { return Idle, ErrClosed }

// Reset empties the report: packages are catalogued anew when a full scan finds them, or
// when their files are written again.
func (h *Host) Reset(context.Context) (State, error) { return Idle, ErrClosed }

// Wait returns when no full scan runs.
func (h *Host) Wait(context.Context) error { return ErrClosed }

// Status says what the scanner does and has.
func (h *Host) Status() Status { return Status{} }

// SetRules replaces the rules of reports at once.
func (h *Host) SetRules(Rules) error { return ErrClosed }

// UpdateDatabase looks for a newer database now, and compares all packages with it.
func (h *Host) UpdateDatabase(context.Context) error { return ErrClosed }
