package portal

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// problem is something that needs an operator.
type problem struct {
	What   string    // the condition as a sentence
	Next   string    // the recommended action
	Path   string    // of what it is about; "": nothing
	Since  time.Time // zero: not known
	Urgent bool      // instances do not start, or are in danger; others can wait for hours
	Outage *outage   // nodes that are lost for one cause; nil: it is about something else
}

// outage is nodes that are lost for one cause.
type outage struct {
	api.Outage
	Together bool // they were lost within a minute, so that the cause is likely outside them
	Spread   string
	Check    string // command that checks the way from a node to the controller
}

// together is the time in which nodes are lost that have a common cause.
const together = time.Minute

// isOffline reports whether it is about nodes without contact; those that are Unhealthy have it.
func (o *outage) isOffline() bool { return o != nil && o.State == string(farm.NodeOffline) }

func newOutage(o api.Outage) *outage {
	spread := o.LastContactLost.Sub(o.FirstContactLost)
	return &outage{Outage: o, Together: o.Nodes > 2 && spread <= together, Spread: format.Duration(spread)}
}

// coveredAlarms are the alarms whose conditions are reported in more detail.
var coveredAlarms = []string{api.AlarmOutage, api.AlarmRegistryAway}

// alarmPaths returns the page about an alarm's subject, by the name of the alarm. The others have no page: their
// text names the subject.
var alarmPaths = map[string]func(subject string) string{
	api.AlarmNodeDisk:   nodePath,
	api.AlarmNodeClock:  nodePath,
	api.AlarmOrphans:    nodePath,
	api.AlarmQueueGrows: groupPath,
}

func nodePath(id string) string { return "/nodes/" + url.PathEscape(id) }

// troubleOf returns what needs an operator, urgent conditions first. Every page has the same list: the banner and
// the number in the navigation are of it.
func troubleOf(status *api.ControllerStatus, stats *api.ControllerStats) (list []problem) {
	switch {
	case status != nil && len(status.Outages) > 0:
		list = append(list, outageTrouble(status.Outages)...)
	case stats != nil:
		list = append(list, nodeTrouble(stats)...)
	}
	if status != nil {
		list = append(list, statusTrouble(status)...)
	}
	slices.SortStableFunc(list, func(a, b problem) int {
		if a.Urgent == b.Urgent {
			return 0
		}
		return cmp.Or(map[bool]int{true: -1}[a.Urgent], 1)
	})
	return list
}

// nodeTrouble returns the conditions of the nodes, one for each state.
func nodeTrouble(s *api.ControllerStats) (list []problem) {
	total := sumCounts(s.Nodes)
	for _, state := range []farm.NodeState{farm.NodeOffline, farm.NodeUnhealthy} {
		n := s.Nodes[string(state)]
		if n == 0 {
			continue
		}
		p := problem{
			What: fmt.Sprintf("%d of %s %s %s", n, format.Plural(total, "node", "nodes"), isOrAre(n), state),
			Next: "See the state reasons on their pages.", Path: "/nodes?q=state%3A" + statePart(state),
			Urgent: 2*n >= total,
		}
		if state == farm.NodeOffline {
			p.Next = "Check that they and their agents run (buildnode status), and that they reach the controller."
		}
		list = append(list, p)
	}
	return list
}

// outageTrouble returns the conditions of the nodes by their causes.
func outageTrouble(all []api.Outage) (list []problem) {
	for _, one := range all {
		o := newOutage(one)
		where := ""
		if len(o.Groups) > 0 && o.Groups[0].Nodes == o.Nodes {
			where = " in the group " + o.Groups[0].Name
		}
		p := problem{
			What: fmt.Sprintf("%d of %s%s %s %s", o.Nodes, format.Plural(o.Of, "node", "nodes"), where,
				isOrAre(o.Nodes), o.State),
			Since: o.FirstContactLost, Outage: o, Urgent: 2*o.Nodes >= o.Of,
			Path: format.Path("/nodes", "q", "state:"+statePart(farm.NodeState(o.State))),
		}
		switch {
		case !o.isOffline():
			p.Next = "Reason: " + o.Reason +
				". Repair their hypervisor, or terminate the instances that hold their slots."
		case o.Together:
			p.Next = "All were lost within " + o.Spread +
				": check the network, certificates and the controller's address."
		default:
			p.Next = "Check that they and their agents run (buildnode status), and that they reach the controller."
		}
		list = append(list, p)
	}
	return list
}

// statePart is a state as a filter writes it.
func statePart(state farm.NodeState) string {
	if state == farm.NodeOffline {
		return "offline"
	}
	return "unhealthy"
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// statusTrouble returns the conditions of the controller and its registry.
func statusTrouble(s *api.ControllerStatus) (list []problem) {
	for _, alarm := range s.ActiveAlarms {
		if slices.Contains(coveredAlarms, alarm.Name) {
			continue
		}
		p := problem{
			What: alarm.Message, Next: cmp.Or(alarm.Action, "See the log of the controller."), Since: alarm.Since,
			Urgent: alarm.Urgent,
		}
		if path := alarmPaths[alarm.Name]; path != nil && alarm.Subject != "" {
			p.Path = path(alarm.Subject)
		}
		list = append(list, p)
	}
	if s.RegistryStatus != "Running" {
		list = append(list, problem{
			Since: alarmSince(s, api.AlarmRegistryAway),
			What:  "The registry at " + s.RegistryAddress + " cannot be reached",
			Next: "Check that it runs and that the controller can reach its address. Until then nothing can be " +
				"pulled or saved; running instances continue.", Urgent: true,
		})
	}
	if n := s.RegistryDamaged; n > 0 {
		list = append(list, problem{
			What: format.Plural(n, "template or version is damaged", "templates and versions are damaged") +
				" in the registry at " + s.RegistryAddress,
			Next: "List them: buildyard registry check. " + repairHint, Path: "/health#damaged",
		})
	}
	if s.Maintenance != nil {
		list = append(list, problem{
			What: "Maintenance mode is on; cleanup is paused",
			Next: "End it after the work: buildyard maintenance off, or DELETE /api/v1/maintenance.",
		})
	}
	if s.UnknownVMs > 0 && !hasAlarm(s, api.AlarmOrphans) {
		list = append(list, problem{
			What: format.Plural(s.UnknownVMs, "orphaned VM", "orphaned VMs"),
			Next: "Adopt or remove: buildyard node adopt.", Path: "/nodes",
		})
	}
	return list
}

func hasAlarm(s *api.ControllerStatus, name string) bool {
	return slices.ContainsFunc(s.ActiveAlarms, func(a api.Alarm) bool { return a.Name == name })
}

// alarmSince returns when an alarm began; zero where it is not active.
func alarmSince(s *api.ControllerStatus, name string) time.Time {
	for _, a := range s.ActiveAlarms {
		if a.Name == name {
			return a.Since
		}
	}
	return time.Time{}
}
