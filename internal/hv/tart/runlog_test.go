package tart

import (
	"strings"
	"testing"
)

func TestRunLog(t *testing.T) {
	const vnc = "VNC server is running at vnc://:easy-word-word-word@127.0.0.1:61453\n"
	for _, c := range []struct{ log, address, password, failure string }{
		{"", "", "", "tart run ended without a message"},
		{vnc, "127.0.0.1:61453", "easy-word-word-word", "tart run ended without a message"},
		{strings.TrimSuffix(vnc, "\n"), "", "", "tart run ended without a message"}, // it is still being written
		{
			"VNC server is running at http://x\n" + vnc, "127.0.0.1:61453", "easy-word-word-word",
			"tart run ended without a message",
		},
		{vnc + "guest has stopped the virtual machine\n", "127.0.0.1:61453", "easy-word-word-word", shutDownText},
		{
			"guest has stopped the virtual machine due to error: kernel panic\nStopping VM...\n", "", "",
			"guest has stopped the virtual machine due to error: kernel panic",
		},
		{"Error: " + limitText + " (other running VMs: a, b)\n", "", "", limitText + " (other running VMs: a, b)"},
		{
			`Error: Error Domain=VZErrorDomain Code=1 "The virtual machine failed to start."` + "\nmore\n", "", "",
			`Error Domain=VZErrorDomain Code=1 "The virtual machine failed to start."; ` + keychainRemedy,
		},
	} {
		l := runLog(c.log)
		address, password := l.vncServer()
		if address != c.address || password != c.password || l.failure() != c.failure {
			t.Errorf("%q: got %q %q %q", c.log, address, password, l.failure())
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.28.0": true, "2.35.0": true, "3.0": true, "2.27.9": false, "1.99.0": false, "": false, "tart 2.30": false,
		"2.30.0-beta.1": true,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func FuzzRunLog(f *testing.F) {
	f.Add("VNC server is running at vnc://:a-b@127.0.0.1:1\nguest has stopped the virtual machine\n")
	f.Fuzz(func(t *testing.T, text string) {
		l := runLog(text)
		if l.failure() == "" {
			t.Error("a run without a failure")
		}
		_, _ = l.vncServer()
	})
}
