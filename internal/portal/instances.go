package portal

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) instancePages() []page {
	return []page{
		{
			pattern: "/instances", templateName: "instances", title: "Instances", topics: Instances,
			buildView: listInstances,
		},
		{
			pattern: "/instances/{id}", templateName: "instance", title: "Instance", topics: Instances,
			buildView: showInstance,
		},
	}
}

func (p *portal) instanceActions() []action {
	return []action{
		{
			pattern: "/instances/end", templateName: "end", title: "Terminate instances", buildForm: askEnd,
			perform: doEnd,
		},
	}
}

// instanceRow is an instance in the list.
type instanceRow struct {
	ID, State, Name      string
	Detail               string // what else its client calls it
	Template, TemplateID string
	Tag                  string
	Node, NodeID         string
	IP, MAC, ExternalID  string
	Owner                string
	StartTook            string // from the request until it was started first; "": it was not
	Expires              time.Time
	Created              time.Time
	Note                 string // how far it is, why it waits, what failed
	Phase                string // of the API
	Terminated           bool
}

// instanceList is the page of the instances.
type instanceList struct {
	Filter, Sort, FilterError string
	CurlCommand               string
	Total                     int    // that match
	Terminated                int    // of those
	Summary                   string // how many match
	EndAllDenied              string // why not all that match can be terminated together; "": they can
	Chips                     []chip
	Columns                   []column
	ColumnMenu                columnMenu
	Has                       map[string]bool // columns by their IDs
	Rows                      []instanceRow
	Pager                     pager
}

var instanceColumns = []column{
	{Name: "Name", Field: "name"},
	{Name: "State", Field: "state"},
	{ID: "detail", Name: "Detail"},
	{ID: "template", Name: "Template", Field: "template"},
	{ID: "node", Name: "Node", Field: "node"},
	{ID: "ip", Name: "IP", HideOnNarrow: true},
	{ID: "owner", Name: "Owner", HideOnNarrow: true},
	{ID: "took", Name: "Start took", Numeric: true, HideOnNarrow: true},
	{ID: "external", Name: "External ID", HideOnNarrow: true, IsExtra: true},
	{ID: "mac", Name: "MAC address", HideOnNarrow: true, IsExtra: true},
	{ID: "id", Name: "ID", HideOnNarrow: true, IsExtra: true},
	{ID: "expires", Name: "Terminates at", Numeric: true, IsExtra: true},
	{ID: "age", Name: "Age", Field: "age", Numeric: true},
}

func instanceStates() (names []string) {
	for _, s := range farm.InstanceStates {
		names = append(names, string(s))
	}
	return names
}

func listInstances(v *visit) (any, error) {
	a := v.tableQuery("age")
	list := instanceList{Filter: a.filter, Sort: v.query.Get("sort")}
	page, err := v.InstancePage(v, a.pageOptions())
	if err == nil && a.clampPage(len(page.Instances), page.Total) {
		page, err = v.InstancePage(v, a.pageOptions())
	}
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Total, list.Pager = page.Total, a.pager(len(page.Instances), page.Total)
	list.Terminated = page.States[string(farm.Terminated)]
	list.Summary, list.EndAllDenied = list.summary(), list.endAllDenied()
	list.Columns, list.Has, list.ColumnMenu = v.chooseColumns(a.columns(instanceColumns))
	states := page.States
	if rest, chosen := cutStateTerm(a.filter); chosen != nil { // what the others would show
		if all, err := v.InstancePage(v, client.PageOptions{Filter: rest, Limit: 1}); err == nil {
			states = all.States
		}
	}
	list.Chips = a.chips(states, instanceStates())
	list.CurlCommand = curlCommand(v, "GET", "/api/v1/vm?"+url.Values{"filter": {a.filter}}.Encode(), "")
	for _, item := range page.Instances {
		list.Rows = append(list.Rows, newInstanceRow(item, page))
	}
	return list, nil
}

// Live returns how many of the matching instances are not terminated, as the navigation counts them.
func (l instanceList) Live() int { return l.Total - l.Terminated }

// summary returns how many instances match, without those that are terminated, and how many of those there are.
func (l instanceList) summary() string {
	text := format.Plural(l.Live(), "instance", "instances")
	if l.Filter != "" {
		text += " that match"
	}
	if l.Terminated > 0 {
		text += " and " + format.Count(l.Terminated) + " terminated"
	}
	return text
}

// endAllDenied returns why the instances that match cannot be terminated together; "" where they can.
func (l instanceList) endAllDenied() string {
	switch {
	case l.Live() == 0:
		return "All instances that match are terminated."
	case l.Live() > maxEnded:
		return tooManyText(l.Live())
	}
	return ""
}

func newInstanceRow(item api.InstanceItem, page api.InstancePage) instanceRow {
	vm := item.VM
	row := instanceRow{
		ID: item.InstanceID, State: vm.InstanceState, Name: instanceName(item), Tag: vm.Tag, Created: vm.CRTime,
		TemplateID: vm.VMID, Template: page.Templates[vm.VMID], NodeID: vm.NodeID, Node: page.Nodes[vm.NodeID],
		ExternalID: vm.ExternalID, MAC: vm.MACAddress, Expires: vm.Expires, Owner: vm.Owner, StartTook: startTook(vm),
		Note: vm.Message, Phase: vm.Phase, Terminated: vm.InstanceState == string(farm.Terminated),
	}
	if vm.ExternalID != row.Name {
		row.Detail = vm.ExternalID
	}
	if vm.VMInfo != nil {
		row.IP = vm.VMInfo.IP
	}
	if vm.Failure != nil {
		row.Note = vm.Failure.Summary
	}
	if vm.Phase == "placed" || vm.Phase == "booting" || vm.Phase == "startup_script" {
		row.Note = cmp.Or(row.Note, chart.PhaseText(vm.Phase))
	}
	if vm.InstanceState == string(farm.Pulling) {
		row.Note = format.Percent(vm.Progress) + " % pulled"
	}
	return row
}

// startTook returns how long it took from the request of an instance until it was started first; "": it was not.
func startTook(vm api.Instance) string {
	if vm.Started.IsZero() || vm.CRTime.IsZero() {
		return ""
	}
	return format.Duration(vm.Started.Sub(vm.CRTime))
}

// instanceName is what an instance is called: its name, else what its client calls it, else the end of its id.
func instanceName(item api.InstanceItem) string {
	for _, name := range []*string{item.Name, item.ExternalID} {
		if name != nil && *name != "" {
			return *name
		}
	}
	return format.ShortID(item.InstanceID)
}

// uniqueTexts are texts without those that come again.
func uniqueTexts(all []string) (once []string) {
	seen := map[string]bool{}
	for _, text := range all {
		if !seen[text] {
			once = append(once, text)
		}
		seen[text] = true
	}
	return once
}

// selection is what an action on several instances is about.
type selection struct {
	Filter      string
	All         bool // that fit the filter, whichever those are when it is done
	Total       int
	Rows        []instanceRow // the first ones
	Reason      string        // why some of those are not shown
	IDs         []string
	ConfirmText string // has to be typed, where it is about many
	Refusal     string // why the form is shown again; "": it is shown for the first time
	Back        string // the page that it was asked from
	CurlCommand []string
}

const (
	typedFrom = 20  // from so many on the number has to be typed
	firstRows = 5   // that are shown
	maxEnded  = 500 // at a time

	alive = "-state:terminated" // has a filter leave out what is gone, and is remembered for a while
)

// selectedInstances reads which instances a form is about.
func selectedInstances(v *visit) (selection, error) {
	c := selection{
		Filter: v.query.Get("q"), All: v.query.Get("all") == "1", IDs: uniqueTexts(v.query["chosen"]),
		Back: backPath(v,
			"/instances"),
	}
	if !c.All {
		if len(c.IDs) == 0 {
			return c, formError("No instance selected: select rows first.")
		}
		c.Total = len(c.IDs)
		for _, id := range c.IDs[:min(firstRows, len(c.IDs))] {
			inst, err := v.Instance(v, id)
			if err != nil {
				c.Reason = notShownReason(err)
				continue // the action reports it, too
			}
			c.Rows = append(c.Rows,
				instanceRow{
					ID: id, State: inst.InstanceState,
					Name: instanceName(api.InstanceItem{
						InstanceID: id, Name: &inst.Name, ExternalID: &inst.ExternalID,
					}),
				})
		}
		return c, nil
	}
	page, err := v.InstancePage(v,
		client.PageOptions{Filter: strings.TrimSpace(c.Filter + " " + alive), Limit: maxEnded})
	if err != nil {
		return c, err
	}
	if page.Total == 0 {
		return c, formError("No matching instance is left to terminate.")
	}
	c.Total, c.IDs = page.Total, nil
	for _, item := range page.Instances {
		c.IDs = append(c.IDs, item.InstanceID)
		if len(c.Rows) < firstRows {
			c.Rows = append(c.Rows, newInstanceRow(item, page))
		}
	}
	return c, nil
}

func askEnd(v *visit) (any, error) {
	c, err := selectedInstances(v)
	if err == nil {
		err = c.bounded()
	}
	if err != nil {
		return nil, err
	}
	return c.confirmed(v), nil
}

// bounded refuses selections that are too large for one form.
func (c *selection) bounded() error {
	if c.Total > maxEnded {
		return formError(tooManyText(c.Total))
	}
	return nil
}

// tooManyText is the refusal of a selection that is too large for one form.
func tooManyText(n int) string {
	return "At most " + format.Plural(maxEnded, "instance", "instances") + " are terminated at a time, and " +
		format.Plural(n, "instance matches", "instances match") + ". Narrow the filter, or use the API."
}

// confirmed adds what the form asks and shows.
func (c selection) confirmed(v *visit) selection {
	c.ConfirmText = c.confirmation().typedText()
	for _, id := range c.IDs[:min(firstRows, len(c.IDs))] {
		c.CurlCommand = append(c.CurlCommand,
			curlCommand(v, "DELETE", "/api/v1/vm", format.JSON(map[string]string{"id": id})))
	}
	if c.All {
		c.IDs = nil
	}
	return c
}

// confirmation is what the form of these instances has to confirm.
func (c *selection) confirmation() confirmation {
	return confirmation{
		All: c.All, Total: c.Total, One: "instance", Many: "instances", Nothing: "Nothing was terminated.",
	}
}

func doEnd(v *visit) (actionResult, error) {
	c, err := selectedInstances(v)
	if err == nil {
		err = c.bounded()
	}
	if err != nil {
		return actionResult{}, err
	}
	if c.Refusal = c.confirmation().refusal(v.query); c.Refusal != "" {
		return actionResult{Form: c.confirmed(v), Invalid: true}, nil
	}
	out := actionResult{Back: c.Back}
	for _, id := range c.IDs {
		r := itemResult{Name: id, Path: "/instances/" + url.PathEscape(id), Said: "Termination requested"}
		if err := v.Terminate(v, id); err != nil {
			r.Reason = notShownReason(err)
		}
		out.Items = append(out.Items, r)
	}
	if len(out.Items) == 1 && out.Failed() == 0 {
		return actionResult{ResultPath: out.Items[0].Path}, nil
	}
	out.withStates(v, "instances", c.IDs)
	return out, nil
}
