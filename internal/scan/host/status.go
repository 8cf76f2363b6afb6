package host

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Status is what the scanner does and has.
type Status struct {
	State    State
	Path     string      // that real-time scanning is restricted to; "" is the whole host
	Since    time.Time   // last start of a scan; zero is never
	Reset    time.Time   // last reset; zero is never
	Progress *Progress   // of a full scan that runs
	LastScan *ScanResult // that ended; nil is none since the reset of the catalog's file
	Mounts   []Mount     // what is watched, and how, and what is not; in real-time mode
	Database DatabaseStatus
	Counts   Contents
	Pending  int      // changes that wait to settle or to be read
	Judging  bool     // packages are being compared with the database
	Warnings []string // sentences that somebody should read
	Work     Work
}

// Progress is how far a full scan is.
type Progress struct {
	Path     string
	Started  time.Time
	Phase    string // "looking", "reading" or "judging"
	Files    int    // seen
	Wanted   int    // of them that may hold packages, once all were seen
	Read     int    // of those
	Packages int    // found in them
}

// ScanResult is a full scan that ended.
type ScanResult struct {
	Path         string        `json:"path"`
	Started      time.Time     `json:"started"`
	Took         time.Duration `json:"took"`
	Files        int           `json:"files"`    // seen
	Read         int           `json:"read"`     // that an extractor looked into
	Packages     int           `json:"packages"` // in what was scanned, each once
	Denied       int           `json:"denied"`   // folders and files that this program may not read
	Unread       int           `json:"unread"`   // others that could not be read
	Skipped      int           `json:"skipped"`  // folders left out, by the kind of their file system or as asked
	FirstUnread  []string      `json:"firstUnread,omitempty"`
	FirstSkipped []string      `json:"firstSkipped,omitempty"`
	Cancelled    bool          `json:"cancelled,omitempty"`
	Error        string        `json:"error,omitempty"`
}

// Mount is a file system and how it is watched.
type Mount struct {
	Path   string
	Type   string // "ext4", "apfs"
	Method string // "fanotify", "inotify", "fsevents", "poll"; "" is not at all
	Why    string // it is not watched, or not in the best way
}

// DatabaseStatus is what is known of the vulnerability database.
type DatabaseStatus struct {
	Path    string
	Present bool
	Info    vulndb.Info // when it is present
	Age     time.Duration
	Checked time.Time // last successful look for a newer one; zero is never
	Next    time.Time // next look; zero is none
	Error   string    // of the last look, or of opening it
	Judged  time.Time // Built of the database that all packages were compared with; zero is none yet
}

// Contents are the numbers of the catalog.
type Contents struct {
	Files    int // known, with packages or without
	Packages int
	Findings int // also those that the rules leave out
	Bytes    int64
}

// Work counts what was done since the program began.
type Work struct {
	FullScans uint64
	Changes   uint64 // told by the watcher
	Rescans   uint64 // folders looked through because of them
	FilesRead uint64
	Packages  uint64 // catalogd
	Findings  uint64 // that became known
	Judged    uint64 // packages compared with a database
	Updates   uint64 // of the database that brought a newer one
	Failures  uint64 // of updates
}
