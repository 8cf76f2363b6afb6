package anka

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/sanitize"
)

// Codes of failures that the driver tells apart.
const (
	codeNotFound  = 3
	codeNameTaken = 18
)

const maxMessageBytes = 300

// Error is a failure that anka reports.
type Error struct {
	Verb    string // of the command
	Code    int
	Message string // safe to print
}

func (e *Error) Error() string { return fmt.Sprintf("anka %s: code %d: %s", e.Verb, e.Code, e.Message) }

// hasCode reports whether an error is one of anka with a code.
func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// response is an object that anka prints with -j.
type response struct {
	Status  string          `json:"status"`
	Body    json.RawMessage `json:"body"`
	Code    int             `json:"code"`
	Message string          `json:"message"`
}

// parseResponse returns the body of what a command has printed. Of several objects, one a line, the last
// counts; the others report progress.
func parseResponse(verb string, output []byte) (json.RawMessage, error) {
	output = bytes.TrimSpace(output)
	line := output[bytes.LastIndexByte(output, '\n')+1:]
	var r response
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("anka %s printed %.80q, which is not the JSON of a response; want anka 3.5 to 3.9", verb,
			line)
	}
	switch r.Status {
	case "OK":
		return r.Body, nil
	case "ERROR":
		return nil, &Error{Verb: verb, Code: r.Code, Message: printable(r.Message)}
	}
	return nil, fmt.Errorf("anka %s responded with the unknown status %.80q", verb, r.Status)
}

func printable(text string) string {
	if len(text) > maxMessageBytes {
		text = strings.ToValidUTF8(text[:maxMessageBytes], "")
	}
	return sanitize.EscapeText(text)
}

// shownVM is the body of show. Fields of VMs that do not run are empty.
type shownVM struct {
	UUID       string `json:"uuid"`
	Status     string `json:"status"` // running, stopped, suspended, failed
	HardDrive  int64  `json:"hard_drive"`
	CPUs       int    `json:"cpu_cores"`
	RAM        string `json:"ram"` // "6G"
	ImageBytes int64  `json:"image_size"`
	PID        int    `json:"pid"`
	IP         string `json:"ip"`
}

// The statuses that mean something to the driver.
const (
	statusRunning   = "running"
	statusStopped   = "stopped"
	statusSuspended = "suspended"
	statusFailed    = "failed"
)

// shownNetwork is the body of show ID network.
type shownNetwork struct {
	MAC   string `json:"mac"`
	Rules []struct {
		Name      string `json:"name"`
		GuestPort int    `json:"guest_port"`
		HostPort  int    `json:"host_port"`
	} `json:"port_forwarding_rules"`
}

// shownLicense is the body of license show.
type shownLicense struct {
	Type    string `json:"license_type"`
	Status  string `json:"status"`
	Expires string `json:"expires"` // "17-aug-2025"; "" = never
}

type shownVersion struct {
	Product string `json:"product"`
	Version string `json:"version"`
	Build   string `json:"build"`
}

// decode reads a body; a null body leaves the value as it is.
func decode(verb string, body json.RawMessage, into any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("anka %s responded with a body of another form: %w", verb, err)
	}
	return nil
}
