package eventtext

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// Part is a part of a sentence about an event: text, or a link.
type Part struct{ Text, Path string }

// sentence describes a kind of event. Sentences have fields in braces: by, instance, node, template, count nodes
// and more_nodes with their number, and those of the event.
type sentence struct {
	icon, tone string
	one        string
	many       string   // about count equal events; "": one
	same       []string // fields that are the same in equal events
}

// sentences are the sentences of the events of the API.
var sentences = map[farm.EventName]sentence{
	farm.EventStartVM: {
		"plus", "", "{by} requested {instance} of {template}", "{by} requested {count} instances of {template}",
		[]string{"template_id", "tag"},
	},
	farm.EventVMStarted: {"ok", "ok", "{instance} started on {node}", "{count} instances started", nil},
	farm.EventVMFailedToStart: {
		"alert", "bad", "{instance} failed on {node}: {summary}", "{count} instances failed: {summary}",
		[]string{"summary"},
	},
	farm.EventTerminateVM: {"stop", "", "{by} terminated {instance}", "{by} terminated {count} instances", nil},
	farm.EventVMTerminated: {
		"dash", "", "The VM of {instance} was removed", "The VMs of {count} instances were removed", nil,
	},
	farm.EventDistribute: {
		"push", "", "{by} prefetched {template} to {nodes}", "",
		[]string{"template_id", "tag", "request_id"},
	},
	farm.EventTemplatePulled: {
		"pull", "", "{node} pulled {template}", "{template} was pulled {count} times", []string{"template_id", "tag"},
	},
	farm.EventDeleteRegistryVM: {
		"trash", "warn", "{by} deleted the template {template}", "", []string{"template_id"},
	},
	farm.EventConfigNode: {
		"edit", "", "{by} {change} {node}", "{by} {change} {count} nodes", []string{"change"},
	},
	farm.EventDeleteNode:       {"trash", "warn", "{by} deleted the node {node}", "{by} deleted {count} nodes", nil},
	farm.EventNodeUnregistered: {"out", "warn", "{node} left the cloud", "{count} nodes left the cloud", nil},
	farm.EventNodeDrained: {
		"drain", "ok", "{node} is drained: it has no VM left", "{count} nodes are drained: they have no VM left", nil,
	},
	farm.EventNodeScanned: {
		"shield", "", "The host scan of {node} has new results", "The host scans of {count} nodes have new results",
		nil,
	},
	farm.EventVulnerabilityFound: {
		"shield", "warn", "A scan found new vulnerabilities", "{count} scans found new vulnerabilities", nil,
	},
	farm.EventPeerExcluded: {
		"shield", "bad", "{node} sent wrong bytes of a version to {reader}",
		"{count} nodes sent wrong bytes of versions",
		[]string{"reader"},
	},
	farm.EventNodeOffline:    {"wifi", "bad", "{node} went offline", "{count} nodes went offline", nil},
	farm.EventNodeUnhealthy:  {"alert", "bad", "{node} became unhealthy", "{count} nodes became unhealthy", nil},
	farm.EventNodeRecovered:  {"ok", "ok", "{node} recovered", "{count} nodes recovered", nil},
	farm.EventNodesOffline:   {"wifi", "bad", "{more_nodes} went offline", "", []string{"node_count"}},
	farm.EventNodesUnhealthy: {"alert", "bad", "{more_nodes} became unhealthy", "", []string{"node_count"}},
	farm.EventNodesRecovered: {"ok", "ok", "{more_nodes} recovered", "", []string{"node_count"}},
	farm.EventAlarmStarted: {
		"alert", "bad", "Alarm {alarm} began: {message}", "", []string{"alarm", "subject", "message"},
	},
	farm.EventAlarmEnded: {"ok", "ok", "Alarm {alarm} ended: {message}", "", []string{"alarm", "subject", "message"}},
	farm.EventsDropped: {
		"alert", "warn", "{lost} events were not delivered to {target}", "", []string{"target", "lost"},
	},
	farm.EventAudit: {
		"lock", "", "{by} called {route}", "{by} called {route} {count} times", []string{"route", "outcome", "about"},
	},
}

// Names are the display names of what events are about, by ID.
type Names map[string]string

// Event writes the texts of one event.
type Event struct {
	client.Event
	Names Names
}

// value returns the text of a field.
func (e Event) value(field string) string {
	switch field {
	case "summary":
		if failure, ok := e.All["failure"].(map[string]any); ok {
			if text := valueText(failure["summary"]); text != "" {
				return strings.TrimSuffix(text, ".")
			}
		}
		return valueText(e.All["message"])
	case "change":
		return nodeChangeText(e.All)
	case "nodes":
		return e.countOf("node", "nodes")
	case "more_nodes":
		return e.countOf("more node", "more nodes")
	case "lost":
		return valueText(e.All["count"])
	case "reader":
		return cmp.Or(valueText(e.All["reader_name"]), valueText(e.All["reader_id"]))
	}
	return valueText(e.All[field])
}

// countOf writes the number of nodes of an event; "" where it is not recorded.
func (e Event) countOf(one, many string) string {
	if n, ok := e.All["node_count"].(float64); ok {
		return format.Plural(int(n), one, many)
	}
	return ""
}

// nodeChangeText returns what was done to the configuration of a node.
func nodeChangeText(fields map[string]any) string {
	if on, ok := fields["drain_mode"].(bool); ok && on {
		return "drained"
	} else if ok {
		return "undrained"
	}
	return "configured"
}

// Actor returns who caused an event; empty: no caller did.
func (e Event) Actor() Part {
	who := cmp.Or(e.value("user"), e.value("key_id"), e.value("address"))
	switch {
	case who != "" && e.value("for_user") != "":
		return Part{who + " for " + e.value("for_user"), format.Path("/events", "q",
			"user:"+format.FilterValue(e.value("for_user")))}
	case e.value("user") != "" || e.value("key_id") != "":
		return Part{who, format.Path("/events", "q", "user:"+format.FilterValue(who))}
	case who != "":
		return Part{who, format.Path("/events", "q", "address:"+format.FilterValue(who))}
	case e.Type == string(farm.APIAction):
		return Part{Text: "an anonymous caller"}
	}
	return Part{Text: "the system"}
}

// subject returns the link to what an event is about.
func (e Event) subject(noun string) Part {
	for _, l := range subjects {
		id := e.value(l.key)
		if l.noun != noun || id == "" {
			continue
		}
		name := cmp.Or(e.value(l.called), e.Names[id], noun+" "+format.ShortID(id))
		if noun == "template" && e.value("tag") != "" {
			name += ":" + e.value("tag")
		}
		return Part{name, l.path + url.PathEscape(id)}
	}
	return Part{Text: "an unknown " + noun}
}

// sentence writes a sentence about count equal events.
func (e Event) sentence(wording string, count int) (parts []Part) {
	for wording != "" {
		text, rest, _ := strings.Cut(wording, "{")
		if text != "" {
			parts = append(parts, Part{Text: text})
		}
		field, after, ok := strings.Cut(rest, "}")
		if wording = after; !ok {
			break
		}
		switch field {
		case "by":
			parts = append(parts, e.Actor())
		case "instance", "node", "template":
			parts = append(parts, e.subject(field))
		case "count":
			parts = append(parts, Part{Text: format.Count(count)})
		default:
			parts = append(parts, Part{Text: cmp.Or(e.value(field), "unknown")})
		}
	}
	if len(parts) > 0 && parts[0].Path == "" && parts[0].Text != "" { // a name stays as it is
		parts[0].Text = format.UpperFirst(parts[0].Text)
	}
	return parts
}

// sentenceOf returns the sentence of an event; that of an event which this program does not know has its name.
func sentenceOf(name string) sentence {
	if s, ok := sentences[farm.EventName(name)]; ok {
		return s
	}
	return sentence{icon: "dash", one: "{name}", same: []string{"name"}}
}

// sameKey returns a text that equal events have in common.
func (e Event) sameKey() string {
	s := sentenceOf(e.Name)
	if s.many == "" && len(s.same) == 0 {
		return e.ID
	}
	key := []string{e.Name, e.Actor().Text}
	for _, field := range s.same {
		key = append(key, e.value(field))
	}
	return strings.Join(key, "\x00")
}

// sentenceFields are the fields of events that their sentences have.
var sentenceFields = []string{
	"failure", "message", "alarm", "route", "verb", "method", "service", "drain_mode", "state", "for_user", "node_ids",
	"tag", "version", "request_id", "count", "target", "node_count", "node_state",
	"group_id", // which has no name in an event
}

// detail writes the other fields of an event, in the order of their names.
func (e Event) detail() string {
	shown := slices.Concat(hiddenKeys, sentenceFields)
	for _, l := range subjects {
		shown = append(shown, l.key, l.called)
	}
	var names []string
	for name, value := range e.All {
		if text := valueText(value); !slices.Contains(shown, name) && text != "" &&
			(name != "priority" || text != "0") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		text := e.value(name)
		if seconds, err := strconv.ParseInt(text, 10, 64); name == "since" && err == nil {
			text = format.Unix(seconds)
		}
		names[i] = strings.ReplaceAll(name, "_", " ") + ": " + text
	}
	return strings.Join(names, ", ")
}

// subjects are the keys of events that name something with a page, with the keys of its display name.
var subjects = []struct{ key, called, noun, path string }{
	{"instance_id", "instance_name", "instance", "/instances/"},
	{"node_id", "node_name", "node", "/nodes/"},
	{"template_id", "template_name", "template", "/templates/"},
}

// FilterOf returns the filter for the events about what a page shows; "" for other pages.
func FilterOf(path string) string {
	for _, l := range subjects {
		if id, ok := strings.CutPrefix(path, l.path); ok && id != "" && !strings.Contains(id, "/") {
			return l.noun + ":" + id
		}
	}
	return ""
}

// hiddenKeys are the keys of events that have a separate place in a row, or do not matter to a
// reader.
var hiddenKeys = []string{
	"id", "name", "type", "sub_type", "time", "machineName", "user", "key_id", "address",
	"request",
}

// valueText writes a value of an event in short.
func valueText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	}
	return format.JSON(value)
}
