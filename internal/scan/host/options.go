package host

import (
	"crypto/ed25519"
	"log/slog"
	"time"

	"github.com/buildyard/buildyard/internal/scan/match"
)

// Options are what a host scanner is opened with.
type Options struct {
	Catalogue string // file of the catalog; its directory is made, the files NAME.* beside it are ours too
	Database  Database
	Rules     Rules
	Leave     []string // folders that are neither scanned nor watched, absolute

	// OnChange is told of what came and went, from the goroutine that noted it: it must be
	// quick, and may be nil. What it is told is in the catalog already.
	OnChange func(Event)

	// OnEnd is told that a full scan has ended, a comparison of all packages with a database, or
	// a reset, whether anything came of it or not. It must be quick, and may be nil.
	OnEnd func(Cause)

	MaxPackages int   // that are kept; 0 is 500,000
	MaxBytes    int64 // of the catalog's file; 0 is 1 GiB

	Log *slog.Logger // nil is silent

	// Calm keeps the memory of the process at rest; nil leaves it to the runtime.
	Calm *GCTuner

	// Watch makes what says what changed; nil is that of this machine.
	Watch WatchFunc

	settle debounce // zero is the usual one
}

// Database says where the vulnerability database lies, and how it is kept up to date.
type Database struct {
	Path    string            // of the file
	Listing string            // URL or path of the listing of newer ones; "" is none, so that only others replace the file
	Key     ed25519.PublicKey // that listings, and what is judged by, must be signed with; nil: signatures are not looked at
	Every   time.Duration     // between updates; 0 is 24 h
	Manual  bool              // nothing is fetched unless UpdateDatabase asks
}

// Rules say which findings a report leaves out. MinSeverity match "low", which is the
// default of the configuration, asks for none: what nobody has scored is shown then.
type Rules = match.Rules

const (
	usualPackages = 500_000
	usualBytes    = 1 << 30
	usualEvery    = 24 * time.Hour
)
