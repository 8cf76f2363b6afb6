package encode

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// Status converts the status of a scanner.
func Status(s host.Status) api.HostStatus {
	out := api.HostStatus{
		HostState: api.HostState{State: string(s.State)}, Path: s.Path, Since: timePointer(s.LastStart),
		Reset:  timePointer(s.LastReset),
		Mounts: []api.HostMount{}, Database: toDatabase(s.Database), Pending: s.Pending, Analyzing: s.Matching,
		Warnings: orEmpty(s.Warnings), NoAdvisories: s.NoAdvisories,
		Counts: api.HostCounts{
			Files: s.Counts.Files, Packages: s.Counts.Packages, Vulnerabilities: s.Counts.Findings,
			OwnerDecided: s.Counts.OwnerDecided, Bytes: s.Counts.Bytes,
		},
	}
	if p := s.Progress; p != nil {
		out.Progress = &api.HostScan{
			Path: p.Path, Started: p.Started.UTC(), Phase: p.Phase, Files: p.Files, Wanted: p.Wanted, Read: p.Read,
			Packages: p.Packages,
		}
	}
	if l := s.LastScan; l != nil {
		out.LastScan = &api.HostScanResult{
			Path: l.Path, Started: l.Started.UTC(), Seconds: l.Took.Seconds(), Files: l.Files, Read: l.Read,
			Packages: l.Packages,
			Denied:   l.Denied, Unread: l.Unread, Skipped: l.Skipped, FirstUnread: orEmpty(l.FirstUnread),
			FirstSkipped: orEmpty(l.FirstSkipped),
			Cancelled:    l.Canceled, Error: l.Error,
		}
	}
	for _, m := range s.Mounts {
		out.Mounts = append(out.Mounts, api.HostMount{Path: m.Path, Type: m.Type, Method: m.Method, Why: m.Reason})
	}
	return out
}

func toDatabase(d host.DatabaseStatus) api.HostDatabase {
	out := api.HostDatabase{
		Path: d.Path, Compared: timePointer(d.MatchedBuilt), Checked: timePointer(d.CheckedAt),
		Next:  timePointer(d.NextCheck),
		Error: d.Error,
	}
	if d.Present {
		out.Built = timePointer(d.Info.Built)
	}
	return out
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Mark returns a mark; gap is why the report of its job may be incomplete, or "".
func Mark(m host.Mark, gap string) api.HostMark {
	return api.HostMark{Job: m.Job, Created: m.Created.UTC(), Path: m.Path, Incomplete: gap}
}
