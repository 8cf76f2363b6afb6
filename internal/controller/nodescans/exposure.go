package nodescans

import (
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Finding is a vulnerability of a package of a node.
type Finding struct {
	Severity  string
	Exploited bool
	Known     time.Time // when the scanner of the node first found it; zero counts as always
}

// Exposed lists the instances that ran on a node when some findings were known of it, or later: those that are placed
// there, and those of the history. Standbys of pools are left out, since no caller has asked for them.
func (s *Scans) Exposed(node string, found []Finding) (list []api.ExposedInstance, leftOut int) {
	known := newKnownTimes(found)
	now := s.db.Now()
	add := func(one api.ExposedInstance) {
		until := now
		if one.Finished != nil {
			until = *one.Finished
		}
		if known.count(until, &one); known.all.until(until) > 0 {
			list = append(list, one)
		}
	}
	for _, i := range s.db.Tables.Instances.Where(record.ByNode, node) {
		if !i.IsStandby() {
			add(api.ExposedInstance{
				InstanceID: i.ID, Name: i.Name, ExternalID: i.ExternalID, State: string(i.State),
				TemplateID: i.Template.ID, Tag: i.Template.Tag, Placed: i.Placed.UTC(), Finished: timeOrNil(i.Finished),
			})
		}
	}
	for _, i := range s.db.Tables.History.All() {
		if i.NodeID == node {
			add(api.ExposedInstance{
				InstanceID: i.ID, Name: i.Name, ExternalID: i.ExternalID, State: string(farm.Terminated),
				TemplateID: i.TemplateID, Tag: i.Tag, Placed: i.Placed.UTC(), Finished: timeOrNil(i.Finished),
			})
		}
	}
	slices.SortFunc(list, func(a, b api.ExposedInstance) int {
		if c := b.Placed.Compare(a.Placed); c != 0 {
			return c
		}
		return strings.Compare(a.InstanceID, b.InstanceID)
	})
	if leftOut = len(list) - api.MaxExposedInstances; leftOut > 0 {
		return list[:api.MaxExposedInstances], leftOut
	}
	return list, 0
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// times are sorted times.
type times []time.Time

// until returns how many of them are not after a time.
func (t times) until(end time.Time) int {
	n, _ := slices.BinarySearchFunc(t, end, func(one, end time.Time) int {
		if one.After(end) {
			return 1
		}
		return -1
	})
	return n
}

// knownTimes are the times since which findings are known.
type knownTimes struct {
	all, exploited times
	bySeverity     map[string]times
}

func newKnownTimes(found []Finding) knownTimes {
	k := knownTimes{bySeverity: map[string]times{}}
	sorted := slices.SortedFunc(slices.Values(found), func(a, b Finding) int { return a.Known.Compare(b.Known) })
	for _, f := range sorted {
		k.all = append(k.all, f.Known)
		if f.Exploited {
			k.exploited = append(k.exploited, f.Known)
		}
		switch f.Severity {
		case "critical", "high", "medium", "low":
		default:
			f.Severity = "unknown"
		}
		k.bySeverity[f.Severity] = append(k.bySeverity[f.Severity], f.Known)
	}
	return k
}

// count sets the numbers of an instance that ran until a time.
func (k *knownTimes) count(end time.Time, to *api.ExposedInstance) {
	to.Counts.Exploited = k.exploited.until(end)
	for severity, n := range map[string]*int{
		"critical": &to.Counts.Critical, "high": &to.Counts.High, "medium": &to.Counts.Medium,
		"low": &to.Counts.Low, "unknown": &to.Counts.Unknown,
	} {
		*n = k.bySeverity[severity].until(end)
	}
}
