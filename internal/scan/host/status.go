package host

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Status describes the activity and the contents of the scanner.
type Status struct {
	State     State
	Path      string      // that real-time scanning is restricted to; "" is the whole host
	LastStart time.Time   // last start of a scan; zero is never
	LastReset time.Time   // last reset; zero is never
	Progress  *Progress   // of a full scan that runs
	LastScan  *ScanResult // last one that ended; nil is none since the inventory's file was created
	Mounts    []Mount     // what is watched, and how, and what is not; in real-time mode
	Database  DatabaseStatus
	Counts    InventoryCounts
	Pending   int      // changes that wait to settle or to be read
	Matching  bool     // packages are being compared with the database
	Warnings  []string // sentences for the operator

	NoAdvisories []string // those of the warnings about kinds and releases that the database has no advisories for

	Work WorkStats
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
	Read         int           `json:"read"`     // that an extractor read
	Packages     int           `json:"packages"` // in what was scanned, each once
	Denied       int           `json:"denied"`   // directories and files that this process has no permission to read
	Unread       int           `json:"unread"`   // others that could not be read
	Skipped      int           `json:"skipped"`  // directories left out, by the kind of their file system or by option
	FirstUnread  []string      `json:"firstUnread,omitempty"`
	FirstSkipped []string      `json:"firstSkipped,omitempty"`
	Canceled     bool          `json:"cancelled,omitempty"`
	Error        string        `json:"error,omitempty"`
}

// Mount is a file system and how it is watched.
type Mount struct {
	Path   string
	Type   string // "ext4", "apfs"
	Method string // "fanotify", "inotify", "fsevents", "poll"; "" is not at all
	Reason string // it is not watched, or not in the best way
}

// DatabaseStatus describes the vulnerability database.
type DatabaseStatus struct {
	Path         string
	Present      bool
	Info         vulndb.Info // when it is present
	Age          time.Duration
	CheckedAt    time.Time // last successful check for a newer one; zero is never
	NextCheck    time.Time // next check; zero is none
	Error        string    // of the last check, or of opening it
	MatchedBuilt time.Time // Built of the database that all packages were compared with; zero is none yet
}

// InventoryCounts are the numbers of the inventory.
type InventoryCounts struct {
	Files    int // known, with packages or without
	Packages int
	Findings int // also those that the rules leave out
	// OwnerDecided are findings that are not among them: advisories about the owner of the package decide.
	OwnerDecided int
	Bytes        int64
}

// WorkStats counts the work since the process began.
type WorkStats struct {
	FullScans uint64
	Changes   uint64 // reported by the watcher
	Rescans   uint64 // directories walked because of them
	FilesRead uint64
	Packages  uint64 // cataloged
	Findings  uint64 // that became known
	Matched   uint64 // packages compared with a database
	Updates   uint64 // of the database that brought a newer one
	Failures  uint64 // of updates
}
