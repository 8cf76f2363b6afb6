package tart

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/hv/failurelog"
)

// Of a long log its beginning, which has the address of the screen, and its end are read.
const (
	headBytes = 64 << 10
	tailBytes = 192 << 10

	maxRunLogBytes = 16 << 20 // of the file
)

// Lines of tart run.
const (
	vncLine        = "VNC server is running at "
	stoppedLine    = "guest has stopped the virtual machine"
	limitText      = "The number of VMs exceeds the system limit"
	keychainText   = "VZErrorDomain Code=1 "
	keychainRemedy = "often the login keychain is missing or locked: log in on the Mac's screen as the node's user"
)

// runLog is what tart run has printed.
type runLog string

// readRunLog returns the log of a run; "" if there is none yet.
func readRunLog(path string) runLog {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, headBytes+tailBytes))
	if err != nil || len(text) < headBytes+tailBytes {
		return runLog(text)
	}
	tail := failurelog.LastBytes(path, tailBytes)
	if i := bytes.IndexByte(tail, '\n'); i >= 0 {
		tail = tail[i+1:] // from a whole line on
	}
	return runLog(text[:headBytes]) + "\n" + runLog(tail)
}

// trimRunLog drops all but the beginning of a log that is too long. tart appends, so that its next lines follow
// the beginning.
func trimRunLog(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= maxRunLogBytes {
		return nil //nolint:nilerr // there is no log
	}
	return os.Truncate(path, headBytes)
}

// vncServer returns the address and password of the VNC server of the run; "" until it is printed.
func (l runLog) vncServer() (address, password string) {
	for line := range strings.Lines(string(l)) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), vncLine)
		if !found || !strings.HasSuffix(line, "\n") {
			continue
		}
		u, err := url.Parse(strings.TrimSuffix(text, "..."))
		if err != nil || u.Scheme != "vnc" || u.Port() == "" {
			continue
		}
		password, _ := u.User.Password()
		return u.Host, password
	}
	return "", ""
}

// failure returns why a run ended without a request.
func (l runLog) failure() string {
	last := ""
	for line := range strings.Lines(string(l)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, vncLine) {
			continue
		}
		last = strings.TrimPrefix(line, "Error: ")
		if strings.Contains(last, stoppedLine) || strings.Contains(last, "Error Domain=") {
			break // what follows is about the end of the program
		}
	}
	switch {
	case last == "":
		return "tart run ended without a message"
	case strings.Contains(last, keychainText):
		return last + "; " + keychainRemedy
	case last == stoppedLine:
		return shutDownText
	}
	return last
}

// shutDownText is the failure of a run whose guest shut down without a request.
const shutDownText = "the guest shut itself down"
