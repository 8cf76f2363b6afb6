package portal

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

func (p *portal) instancePages() []page {
	return []page{
		{path: "/instances", name: "instances", title: "Instances", topic: Instances, load: listInstances},
		{path: "/instances/{id}", name: "instance", title: "Instance", topic: Instances, load: oneInstance},
	}
}

func (p *portal) instanceDeeds() []deed {
	return []deed{
		{path: "/instances/end", name: "end", title: "End instances", ask: askEnd, do: doEnd},
	}
}

// instanceRow is an instance in the list.
type instanceRow struct {
	ID, State, Name      string
	Template, TemplateID string
	Tag                  string
	Node, NodeID         string
	IP                   string
	Created              time.Time
	Note                 string // how far it is, why it waits, what failed
	Gone                 bool
}

// instanceList is the page of the instances.
type instanceList struct {
	Filter, Sort, Wrong string
	Curl                string
	Total               int
	Chips               []chip
	Columns             []column
	Rows                []instanceRow
	Pager               pager
}

var instanceColumns = []column{
	{Name: "State", Field: "state"},
	{Name: "Name", Field: "name"},
	{Name: "Template", Field: "template"},
	{Name: "Tag", Field: "tag"},
	{Name: "Node", Field: "node"},
	{Name: "IP"},
	{Name: "Age", Field: "age", Num: true},
	{Name: "Note"},
}

func instanceStates() (names []string) {
	for _, s := range farm.InstanceStates {
		names = append(names, string(s))
	}
	return names
}

func listInstances(v *visit) (any, error) {
	a := v.asked("age")
	list := instanceList{Filter: a.filter, Sort: v.q.Get("sort")}
	page, err := v.InstancePage(v, a.options())
	if errors.Is(err, client.ErrInvalid) && a.filter != "" {
		if told, ok := errors.AsType[*client.Error](err); ok {
			list.Wrong = told.Message
		}
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Total, list.Columns, list.Pager = page.Total, a.columns(instanceColumns), a.pager(len(page.Instances), page.Total)
	states := page.States
	if rest, chosen := stateTerm(a.filter); chosen != nil { // what the others would show
		if all, err := v.InstancePage(v, client.PageOptions{Filter: rest, Limit: 1}); err == nil {
			states = all.States
		}
	}
	list.Chips = a.chips(states, instanceStates())
	list.Curl = curl(v, "GET", "/api/v1/vm?"+url.Values{"filter": {a.filter}}.Encode(), "")
	for _, item := range page.Instances {
		list.Rows = append(list.Rows, rowOf(item, page))
	}
	return list, nil
}

func rowOf(item api.InstanceItem, page api.InstancePage) instanceRow {
	vm := item.VM
	row := instanceRow{
		ID: item.InstanceID, State: vm.InstanceState, Name: nameOf(item), Tag: vm.Tag, Created: vm.CRTime,
		TemplateID: vm.VMID, Template: page.Templates[vm.VMID], NodeID: vm.NodeID, Node: page.Nodes[vm.NodeID],
		Note: vm.Message, Gone: vm.InstanceState == string(farm.Terminated),
	}
	if vm.VMInfo != nil {
		row.IP = vm.VMInfo.IP
	}
	if vm.InstanceState == string(farm.Pulling) {
		row.Note = percent(vm.Progress) + " % pulled"
	}
	return row
}

// nameOf is what an instance is called: its name, else what its client calls it, else the begin of its id.
func nameOf(item api.InstanceItem) string {
	for _, name := range []*string{item.Name, item.ExternalID} {
		if name != nil && *name != "" {
			return *name
		}
	}
	return short(item.InstanceID)
}

func short(id string) string { return id[:min(8, len(id))] }

// chosen is what an action on several instances is about.
type chosen struct {
	Filter string
	All    bool // that fit the filter, whichever those are when it is done
	Total  int
	Rows   []instanceRow // the first ones
	IDs    []string
	Typed  string // has to be typed, where it is about many
	Curl   []string
}

const (
	typedFrom = 20  // from so many on the number has to be typed
	firstRows = 5   // that are shown
	mostEnded = 500 // at a time
)

// chosenOf reads which instances a form is about.
func chosenOf(v *visit) (chosen, error) {
	c := chosen{Filter: v.q.Get("q"), All: v.q.Get("all") == "1", IDs: v.q["id"]}
	if !c.All {
		if len(c.IDs) == 0 {
			return c, invalid("No instance is chosen: choose some rows first.")
		}
		c.Total = len(c.IDs)
		for _, id := range c.IDs[:min(firstRows, len(c.IDs))] {
			inst, err := v.Instance(v, id)
			if err != nil {
				continue // it says so when it is done
			}
			c.Rows = append(c.Rows, instanceRow{ID: id, State: inst.InstanceState, Name: nameOf(api.InstanceItem{InstanceID: id, Name: &inst.Name, ExternalID: &inst.ExternalID})})
		}
		return c, nil
	}
	list, err := v.Instances(v, client.ListOptions{Filter: c.Filter})
	if err != nil {
		return c, err
	}
	c.Total = len(list)
	for _, item := range list {
		c.IDs = append(c.IDs, item.InstanceID)
		if len(c.Rows) < firstRows {
			c.Rows = append(c.Rows, rowOf(item, api.InstancePage{}))
		}
	}
	return c, nil
}

func askEnd(v *visit) (any, error) {
	c, err := chosenOf(v)
	if err != nil {
		return nil, err
	}
	if c.Total > typedFrom {
		c.Typed = plural(c.Total, "instance", "instances")
	}
	for _, id := range c.IDs[:min(firstRows, len(c.IDs))] {
		c.Curl = append(c.Curl, curl(v, "DELETE", "/api/v1/vm", `{"id":"`+id+`"}`))
	}
	if c.All {
		c.IDs = nil
	}
	return c, nil
}

func doEnd(v *visit) (outcome, error) {
	c, err := chosenOf(v)
	if err != nil {
		return outcome{}, err
	}
	if c.Total > typedFrom && strings.TrimSpace(v.q.Get("typed")) != plural(c.Total, "instance", "instances") {
		return outcome{}, invalid("Type " + plural(c.Total, "instance", "instances") + " to end as many. There may be another number of them by now.")
	}
	if c.Total > mostEnded {
		return outcome{}, invalid("At most " + plural(mostEnded, "instance", "instances") + " are ended at a time. Narrow the filter, or call the API.")
	}
	out := outcome{Back: "/instances"}
	for _, id := range slices.Compact(c.IDs) {
		r := result{Name: id, Path: "/instances/" + url.PathEscape(id), Said: "Terminating"}
		if err := v.Terminate(v, id); err != nil {
			r.Why = err.Error()
		}
		out.Items = append(out.Items, r)
	}
	if len(out.Items) == 1 && out.Failed() == 0 {
		return outcome{To: out.Items[0].Path}, nil
	}
	return out, nil
}
