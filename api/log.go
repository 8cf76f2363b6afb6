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
