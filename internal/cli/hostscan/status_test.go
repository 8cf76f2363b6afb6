package hostscan

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestStatusText checks the printed status of a service with all features active.
func TestStatusText(t *testing.T) {
	at, db := time.Now().Add(-time.Minute), time.Now().Add(-100*time.Hour)
	pseudo := func(path string) api.HostMount {
		return api.HostMount{Path: path, Type: "proc", Why: "it contains no files"}
	}
	s := api.HostStatus{
		HostState: api.HostState{State: api.HostRealTime}, Path: "/srv", Since: &at, Version: "1",
		LastScan: &api.HostScanResult{
			Started: at, Packages: 1, Seconds: 1.25, Denied: 2, Unread: 1, FirstUnread: []string{"/srv/\x1b[2Jx"},
		},
		Mounts: []api.HostMount{
			{Path: "/", Type: "ext4", Method: "fanotify"},
			pseudo("/proc"),
			{Path: "/net", Type: "nfs4", Why: "it is of another host"},
			pseudo("/a"), pseudo("/b"), pseudo("/c"),
			{Path: "/odd", Type: "fuse", Method: "poll", Why: "the system refuses it"},
		},
		Database: api.HostDatabase{Built: &db, Checked: &at, Error: "no route to it"}, Pending: 1, Analyzing: true,
		Warnings: []string{"it is hot"},
	}
	var out bytes.Buffer
	g := &globals{Streams: Streams{Out: &out}}
	if err := g.printStatus(s); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Service State: Active\nScan State: Real-Time\nWatching: /srv\n",
		" of the whole host, 1 package in 1.2 s, 2 not permitted, 1 not readable\n",
		"Not Read: /srv/?[2Jx\n", "In Progress: 1 change pending, packages are being analyzed\n",
		"(4 days old), last checked for a newer one 1m0s ago (" + at.UTC().Format("2006-01-02 15:04") +
			" UTC), no route to it\n",
		"Watched: / (ext4) by fanotify\n", "Watched: /odd (fuse) by poll: the system refuses it\n",
		"Not Watched: /net (nfs4): it is of another host\n",
		"Not Watched: /proc (proc), /a (proc) and 2 more: it contains no files\n", "Warning: it is hot\n",
	}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("no %q in\n%s", w, out.String())
		}
	}
	for _, c := range []struct {
		scan api.HostScan
		want string
	}{
		{api.HostScan{Files: 5, Packages: 1}, "Cataloging: 5 files seen, 1 package"},
		{api.HostScan{Files: 5, Wanted: 3, Read: 2, Packages: 1}, "Cataloging: 2 of 3 files read, 1 package"},
		{api.HostScan{Phase: "judging", Wanted: 3, Packages: 2}, "Analyzing 2 packages"},
	} {
		if got := formatProgress(c.scan); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
