package host

import (
	"crypto/ed25519"
	"log/slog"
	"time"

	"github.com/buildyard/buildyard/internal/scan/match"
)

// Options configure a host scanner.
type Options struct {
	// InventoryPath is the file of the inventory. Its directory is created; files NAME.* next to it
	// belong to the scanner.
	InventoryPath string
	Database      Database
	Rules         Rules
	Exclude       []string // directories that are neither scanned nor watched: absolute paths, and patterns of them

	// OnChange receives what came and went, on the goroutine that recorded it: it must return
	// quickly, and may be nil. Its event is already stored in the inventory.
	OnChange func(Event)

	// OnEnd is called when a full scan, a comparison of all packages with a database, or a reset
	// has ended, whether or not that changed anything. It must return quickly, and may be nil.
	OnEnd func(Trigger)

	MaxPackages int   // that are kept; 0 is 500,000
	MaxBytes    int64 // of the inventory's file; 0 is 1 GiB

	Log *slog.Logger // nil is silent

	// GC tunes the garbage collector; nil leaves it to the runtime.
	GC *GCTuner

	// NewWatcher creates the watcher of changes; nil is that of this machine.
	NewWatcher WatchFunc

	debounce debounce // zero is the usual one
}

// Database configures the location and the updates of the vulnerability database.
type Database struct {
	Path           string            // of the file
	Listing        string            // URL or path of the listing; "" is none: only other programs replace the file
	Key            ed25519.PublicKey // must have signed listings and the database; nil: signatures are not checked
	UpdateInterval time.Duration     // between updates; 0 is 24 h
	Manual         bool              // nothing is fetched unless UpdateDatabase is called
}

// Rules decide which findings a report leaves out. MinSeverity "low", the default of the
// configuration, requires no score: findings without a score are then shown.
type Rules = match.Rules

const (
	defaultMaxPackages       = 500_000
	defaultMaxInventoryBytes = 1 << 30
	defaultUpdateInterval    = 24 * time.Hour
)
