package portal

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) nodeActions() []action {
	list := []action{
		{
			pattern: "/nodes/{id}/edit", templateName: "nodeedit", title: "Edit node", buildForm: askEditNode,
			perform: doEditNode,
		},
		{
			pattern: "/nodes/{id}/groups", templateName: "nodegroups", title: "Groups of a node",
			buildForm: askNodeGroups,
			perform:   doNodeGroups,
		},
	}
	for _, a := range bulkNodeActions {
		list = append(list, action{pattern: "/nodes/" +
			a.Name, templateName: "nodeact", title: a.Title, buildForm: a.newForm, perform: a.performAll})
	}
	return list
}

// bulkNodeAction is an action that can be applied to several nodes at a time.
type bulkNodeAction struct {
	Name, Title string
	Button      string
	Text        string // the effect on the nodes
	Said        string // the result for one node
	Destructive bool   // it is destructive
	AsksReason  bool   // a reason and a deadline may be given
	callAPI     func(v *visit, id string) error
	curlCommand func(v *visit, id string) string
}

var bulkNodeActions = []bulkNodeAction{
	{
		Name: "drain", Title: "Drain nodes", Button: "Drain", Said: "Drain started", AsksReason: true,
		Text: "No new instances start on the node. Running instances continue until they end, or until the deadline.",
		callAPI: func(v *visit, id string) error {
			config, err := drainConfig(v.query, id)
			if err != nil {
				return err
			}
			return v.ConfigureNode(v, config)
		},
		curlCommand: func(v *visit, id string) string {
			config, _ := drainConfig(v.query, id)
			return nodeConfigCurl(v, config)
		},
	},
	{
		Name: "undrain", Title: "Undrain nodes", Button: "Undrain", Said: "Schedulable",
		Text:        "New instances may start on the node again.",
		callAPI:     func(v *visit, id string) error { return v.ConfigureNode(v, undrainConfig(id)) },
		curlCommand: func(v *visit, id string) string { return nodeConfigCurl(v, undrainConfig(id)) },
	},
	{
		Name: "update", Title: "Update agents", Button: "Update", Said: "Requested",
		Text:    "Each agent is updated to the version of the controller's agent package. Its VMs continue to run.",
		callAPI: func(v *visit, id string) error { return v.UpdateNodes(v, id) },
		curlCommand: func(v *visit, id string) string {
			return curlCommand(v, "PUT", "/api/v1/node/update", format.JSON(map[string][]string{"node_ids": {id}}))
		},
	},
	{
		Name: "delete", Title: "Delete nodes", Button: "Delete", Said: "Deleted", Destructive: true,
		Text: "The node is removed from the cloud, and its instances end in Error. A running agent deletes its VMs " +
			"and must join again.",
		callAPI: func(v *visit, id string) error { return v.DeleteNode(v, id) },
		curlCommand: func(v *visit, id string) string {
			return curlCommand(v, "DELETE", "/api/v1/node", format.JSON(map[string]string{"node_id": id}))
		},
	},
}

// nodeForm is the form of a bulkNodeAction.
type nodeForm struct {
	bulkNodeAction
	Filter            string
	All               bool
	Total             int
	IDs               []string
	Rows              []nodeRow
	NodesHiddenReason string // some of those are not shown
	ConfirmText       string
	Refusal           string // why the form is shown again; "": it is shown for the first time
	Reason, Deadline  string // that were given
	Back              string
	CurlCommand       []string
}

const maxBulkNodes = 1000 // that are changed at a time

// selectedNodes reads which nodes a form is about.
func (a bulkNodeAction) selectedNodes(v *visit) (nodeForm, error) {
	f := nodeForm{
		bulkNodeAction: a, Filter: v.query.Get("q"), All: v.query.Get("all") == "1",
		IDs:  uniqueTexts(v.query["chosen"]),
		Back: backPath(v, "/nodes"),
	}
	if f.All {
		page, err := v.NodePage(v, client.PageOptions{Filter: f.Filter, Sort: "name", Limit: maxBulkNodes})
		if err != nil {
			return f, err
		}
		f.IDs, f.Total = nil, page.Total
		for _, n := range page.Nodes {
			f.IDs = append(f.IDs, n.NodeID)
			if len(f.Rows) < firstRows {
				f.Rows = append(f.Rows, nodeRow{Node: n, Reason: nodeStateReason(n)})
			}
		}
	} else {
		f.Total = len(f.IDs)
	}
	switch {
	case f.Total == 0:
		return f, formError("No node selected: select rows first.")
	case f.Total > maxBulkNodes:
		return f, formError("At most " + format.Plural(maxBulkNodes, "node", "nodes") +
			" are changed at a time. Narrow the filter, or use the API.")
	}
	f.ConfirmText = f.confirmation().typedText()
	return f, nil
}

// confirmation is what the form of these nodes has to confirm.
func (f *nodeForm) confirmation() confirmation {
	return confirmation{All: f.All, Total: f.Total, One: "node", Many: "nodes", Nothing: "Nothing was changed."}
}

func (a bulkNodeAction) newForm(v *visit) (any, error) {
	f, err := a.selectedNodes(v)
	if err != nil {
		return nil, err
	}
	return f.withDetails(v), nil
}

// withDetails adds what the form shows of the nodes.
func (f nodeForm) withDetails(v *visit) nodeForm {
	for _, id := range f.IDs[:min(firstRows, len(f.IDs))] {
		if !f.All {
			n, err := v.Node(v, id)
			if err != nil {
				f.NodesHiddenReason = notShownReason(err) // the action reports it, too
			} else {
				f.Rows = append(f.Rows, nodeRow{Node: n, Reason: nodeStateReason(n)})
			}
		}
		f.CurlCommand = append(f.CurlCommand, f.curlCommand(v, id))
	}
	if f.Total == 1 && len(f.Rows) == 1 {
		v.title = f.Button + " " + f.Rows[0].NodeName
	}
	if f.All {
		f.IDs = nil
	}
	return f
}

func (a bulkNodeAction) performAll(v *visit) (actionResult, error) {
	f, err := a.selectedNodes(v)
	if err != nil {
		return actionResult{}, err
	}
	if f.Refusal = f.confirmation().refusal(v.query); f.Refusal != "" {
		f.Reason, f.Deadline = v.query.Get("reason"), v.query.Get("deadline")
		return actionResult{Form: f.withDetails(v), Invalid: true}, nil
	}
	names := v.nodeNames(f.IDs)
	out := actionResult{Back: f.Back}
	for _, id := range f.IDs {
		r := itemResult{Name: cmp.Or(names[id], id), Path: "/nodes/" + url.PathEscape(id), Said: a.Said}
		if err := a.callAPI(v, id); err != nil {
			r.Reason = notShownReason(err)
		} else if a.Destructive {
			r.Path = ""
		}
		out.Items = append(out.Items, r)
	}
	if len(out.Items) == 1 && out.Failed() == 0 {
		if a.Destructive {
			return actionResult{ResultPath: "/nodes"}, nil
		}
		return actionResult{ResultPath: f.Back}, nil
	}
	if !a.Destructive { // else they are gone
		out.withStates(v, "nodes", f.IDs)
	}
	return out, nil
}

// backPath returns the page of the portal that a form was opened from.
func backPath(v *visit, usual string) string {
	back := v.query.Get("back")
	u, err := url.Parse(back)
	if err != nil || !strings.HasPrefix(back, "/") || strings.HasPrefix(back, "//") ||
		strings.ContainsAny(back, "\\\r\n\t") || u.Host != "" || u.Scheme != "" {
		return usual
	}
	return back
}

func drainConfig(q url.Values, id string) (client.NodeConfig, error) {
	yes := true
	config := client.NodeConfig{NodeID: id, Drain: &yes, DrainReason: strings.TrimSpace(q.Get("reason"))}
	if text := strings.TrimSpace(q.Get("deadline")); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return config, formError("invalid deadline: want a duration such as 30m or 2h")
		}
		limit := client.Duration(d)
		config.DrainLimit = &limit
	}
	return config, nil
}

func undrainConfig(id string) client.NodeConfig {
	no := false
	return client.NodeConfig{NodeID: id, Drain: &no}
}

func nodeConfigCurl(v *visit, c client.NodeConfig) string {
	return curlCommand(v, "POST", "/api/v1/node/config", format.JSON(c))
}

// editForm is the form for the settings of a node.
type editForm struct {
	api.Node
	Back        string
	CurlCommand string
}

func askEditNode(v *visit) (any, error) {
	n, err := v.Node(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.title = "Edit " + n.NodeName
	config := client.NodeConfig{
		NodeID: n.NodeID, Name: n.NodeName, MaxVMCount: n.Capacity,
		CapacityMode: n.CapacityMode,
	}
	return editForm{Node: n, Back: backPath(v, "/nodes/"+n.NodeID), CurlCommand: nodeConfigCurl(v, config)}, nil
}

// doEditNode applies only the fields that were changed in the form, so that a form that was open
// for long does not revert changes by other users.
func doEditNode(v *visit) (actionResult, error) {
	id := v.request.PathValue("id")
	n, err := v.Node(v, id)
	if err != nil {
		return actionResult{}, err
	}
	config, err := changedNodeConfig(v.query, n)
	if err == nil {
		err = v.ConfigureNode(v, config)
	}
	return actionResult{ResultPath: backPath(v, "/nodes/"+url.PathEscape(id))}, labelError(err)
}

// nodeLabels are what the form calls the fields of the API.
var nodeLabels = map[string]string{
	"name": "Name", "host": "Host", "max_vm_count": "Maximum VMs",
	"vcpu_override": "Virtual CPUs", "ram_override": "Memory",
}

// labelError rewrites an error about a field of the API with the label that the form of a node has
// for it.
func labelError(err error) error {
	said, is := errors.AsType[*client.Error](err)
	if !is {
		return err
	}
	field, what, _ := strings.Cut(said.Message, ":")
	label, known := nodeLabels[field]
	if !known {
		return err
	}
	labeled := *said
	labeled.Message = label + ":" + what
	return &labeled
}

func changedNodeConfig(q url.Values, n api.Node) (client.NodeConfig, error) {
	c := client.NodeConfig{NodeID: n.NodeID}
	if isFieldChanged(q, "name") {
		c.Name = strings.TrimSpace(q.Get("name"))
	}
	if isFieldChanged(q, "host") {
		c.Host = cmp.Or(strings.TrimSpace(q.Get("host")), "auto")
	}
	if isFieldChanged(q, "capacity_mode") {
		c.CapacityMode = q.Get("capacity_mode")
	}
	var wrong error
	number := func(name string) *int {
		if !isFieldChanged(q, name) {
			return nil
		}
		k, err := strconv.Atoi(cmp.Or(strings.TrimSpace(q.Get(name)), "0")) // none
		if err != nil {
			wrong = formError(name + ": must be an integer")
		}
		return &k
	}
	if k := number("max_vm_count"); k != nil {
		if c.MaxVMCount = *k; *k == 0 {
			wrong = formError("max_vm_count: must be an integer between 1 and 1000")
		}
	}
	if cmp.Or(c.CapacityMode, n.CapacityMode) == string(farm.CapacityByResources) {
		c.VCPUOverride, c.RAMOverride = number("vcpu_override"), number("ram_override")
	}
	if isFieldChanged(q, "central_log") {
		off := q.Get("central_log") == "off"
		c.NoCentralLog = &off
	}
	return c, wrong
}

// groupsForm is the form of the groups of a node.
type groupsForm struct {
	api.Node
	Groups   []groupChoice
	Original string // ids of those that it is in
	Back     string
}

type groupChoice struct {
	api.Group
	IsMember bool
}

func askNodeGroups(v *visit) (any, error) {
	n, err := v.Node(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	all, err := v.Groups(v, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	v.title = "Groups of " + n.NodeName
	f := groupsForm{Node: n, Back: backPath(v, "/nodes/"+n.NodeID)}
	is := groupIDs(n)
	f.Original = strings.Join(is, ",")
	for _, g := range all {
		f.Groups = append(f.Groups, groupChoice{Group: g, IsMember: slices.Contains(is, g.ID)})
	}
	return f, nil
}

// groupIDs are the ids of the groups that a node is in.
func groupIDs(n api.Node) (ids []string) {
	for _, g := range n.Groups {
		ids = append(ids, g.ID)
	}
	return ids
}

// difference returns what one list has and another has not.
func difference(all, less []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(x string) bool { return slices.Contains(less, x) })
}

func doNodeGroups(v *visit) (actionResult, error) {
	n, err := v.Node(v, v.request.PathValue("id"))
	if err != nil {
		return actionResult{}, err
	}
	is := groupIDs(n)
	want := rebaseSelection(v.query, "group", is, v.query["group"])
	in, out := difference(want, is), difference(is, want)
	if len(in) > 0 {
		if err := v.AddNodeToGroups(v, n.NodeID, in...); err != nil {
			return actionResult{}, err
		}
	}
	if len(out) > 0 {
		if err := v.RemoveNodeFromGroups(v, n.NodeID, out...); err != nil {
			return actionResult{}, err
		}
	}
	return actionResult{ResultPath: backPath(v, "/nodes/"+url.PathEscape(n.NodeID))}, nil
}
