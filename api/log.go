package api

import "time"

// Routes of the registry's log server to which Buildyard's programs write.
const (
	PathLog      = "/log"
	PathLogEvent = "/log/event"
)

// LogRow is one row for the central logs: the body of POST PathLog, which also accepts an array of them.
type LogRow struct {
	MachineName string `json:"machine_name"` // of the machine that sends it
	Service     string `json:"service"`      // the program: controller, registry, node; names the directory
	Host        string `json:"host"`         // address of the machine
	Content     string `json:"content"`      // the text of the row
}

// LogAppendResult is the response to rows for the central logs.
type LogAppendResult struct {
	Rows    int `json:"rows"`    // written
	Dropped int `json:"dropped"` // not written: the disk is full, or fails
}

// Levels of a LogEntry.
const (
	LogDebug = "debug"
	LogInfo  = "info"
	LogWarn  = "warn"
	LogError = "error"
)

// LogEntry is a row of the central logs with its parts.
type LogEntry struct {
	// Time is when the registry received the row; of an event: its time; absent: unknown.
	Time        time.Time         `json:"time,omitzero"`
	Level       string            `json:"level,omitempty"` // debug, info, warn or error; absent: unknown
	Message     string            `json:"message"`
	Service     string            `json:"service"`
	MachineName string            `json:"machine_name,omitempty"`
	Host        string            `json:"host,omitempty"`   // address of the machine
	Fields      map[string]string `json:"fields,omitempty"` // at most 64; keys of nested objects are joined by dots
	Raw         string            `json:"raw"`              // the whole row
}

// LogEntries are the last matching rows of a service, the oldest first.
type LogEntries struct {
	Entries []LogEntry `json:"entries"`
	// File is the file that was read; absent: the ends of the service's last files.
	File string `json:"file,omitempty"`
	// Complete reports that no older row can match. Otherwise the limit of rows or of bytes was reached.
	Complete bool `json:"complete"`
	// Before is the value of the parameter before for the rows before these; absent when there are none, and
	// without File.
	Before int64 `json:"before,omitempty"`
	Bytes  int64 `json:"bytes"` // that were read
}

// LogService is a service that has central logs.
type LogService struct {
	Service   string    `json:"service"`
	Files     int       `json:"files"`      // number of its log files
	Size      int64     `json:"size"`       // bytes of all files
	LastWrite time.Time `json:"last_write"` // time of the newest row
}

// LogFile is one file of a service's central logs.
type LogFile struct {
	Service     string    `json:"service"`
	Name        string    `json:"name"`
	MachineName string    `json:"machine_name"` // "" for events
	Size        int64     `json:"size"`         // bytes
	LastWrite   time.Time `json:"last_write"`   // time of the newest row
}

// StoredFile is an entry of a directory of the registry's file server.
type StoredFile struct {
	Name     string    `json:"name"`
	Dir      bool      `json:"dir"`  // it is a directory
	Size     int64     `json:"size"` // 0 of a directory
	Modified time.Time `json:"modified"`
}

// UploadResult is the response to the upload of a file.
type UploadResult struct {
	Name   string `json:"name"` // below files/
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // 64 hex digits
}
