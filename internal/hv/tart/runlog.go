package tart

import (
	"io"
	"net/url"
	"os"
	"strings"
)

// maxRunLogBytes is how much of a log is read: only its beginning, which has the address of the screen. The
// end of a longer log is not seen.
const maxRunLogBytes = 256 << 10

// Lines of tart run.
const (
	vncLine          = "VNC server is running at "
	stoppedLine      = "guest has stopped the virtual machine"
	limitText        = "The number of VMs exceeds the system limit"
	alreadyRunsText  = "is already running!"
	keychainText     = "VZErrorDomain Code=1 "
	keychainRemedy   = "often the login keychain is missing or locked: log in on the Mac's screen as the node's user"
	macCollisionText = "There is already a running VM with the same MAC address!"
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
	text, _ := io.ReadAll(io.LimitReader(f, maxRunLogBytes))
	return runLog(text)
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
