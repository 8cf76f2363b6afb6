package portal

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// templatePath is the page of a template.
func templatePath(id string) string { return "/templates/" + url.PathEscape(id) }

// distributeForm is the form of a distribution.
type distributeForm struct {
	ID, Name string
	Tags     []string // the newest first
	Tag      string   // that is chosen
	Groups   []api.Group
	Managed  bool     // a permission group has to be named, and no group of nodes can be
	ActAs    []string // permission groups
	Nodes    []api.Node
	Total    int // nodes that there are
	NodesNot string
	Once     string // names this request, so that it is made once
	Curl     string
}

const maxChoices = 200 // nodes that can be ticked

func askDistribute(v *visit) (any, error) {
	detail, err := v.Template(v, v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	f := distributeForm{ID: detail.ID, Name: detail.Name, Tag: v.q.Get("tag"), Once: client.NewKey()}
	for _, t := range slices.Backward(detail.Versions) {
		f.Tags = append(f.Tags, t.Tag)
	}
	page, err := v.NodePage(v, client.PageOptions{Sort: "name", Limit: maxChoices})
	f.Nodes, f.Total, f.NodesNot = page.Nodes, page.Total, refusal(err)
	f.Managed, f.ActAs = v.can().managed(), v.can().actingGroups()
	if groups, err := v.Groups(v, client.ListOptions{}); err == nil && !f.Managed { // else none to choose
		f.Groups = groups
	}
	f.Curl = curl(v, "POST", "/api/v1/registry/vm/distribute",
		jsonOf(map[string]string{"template_id": detail.ID, "tag": cmp.Or(f.Tag, first(f.Tags))}))
	return f, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func doDistribute(v *visit) (actionResult, error) {
	ask := client.DistributeRequest{
		TemplateID: v.r.PathValue("id"), Tag: v.q.Get("tag"),
		Group: strings.TrimSpace(v.q.Get("act_as")), IdempotencyKey: v.q.Get("once"),
	}
	switch to := v.q.Get("to"); to {
	case "all":
	case "group":
		if ask.GroupID = v.q.Get("group"); ask.GroupID == "" {
			return actionResult{}, invalid("Choose a group of nodes.")
		}
	case "filter":
		filter := strings.TrimSpace(v.q.Get("filter"))
		if filter == "" {
			return actionResult{}, invalid("Write a filter for nodes, for example name:mac-*.")
		}
		nodes, err := v.Nodes(v, client.ListOptions{Filter: filter})
		if err != nil {
			return actionResult{}, err
		}
		if len(nodes) == 0 {
			return actionResult{}, invalid("No node matches the filter " + filter + ".")
		}
		for _, n := range nodes {
			ask.NodeIDs = append(ask.NodeIDs, n.NodeID)
		}
	default:
		if ask.NodeIDs = v.q["node"]; len(ask.NodeIDs) == 0 {
			return actionResult{}, invalid("No node selected.")
		}
	}
	id, err := v.Distribute(v, ask)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{To: templatePath(ask.TemplateID) + "/distributions/" + id}, nil
}

func askCancelDistribution(v *visit) (any, error) {
	d, err := v.Distribution(v, v.r.PathValue("request"))
	if err != nil {
		return nil, err
	}
	return distributionOf(d), nil
}

func doCancelDistribution(v *visit) (actionResult, error) {
	id := v.r.PathValue("request")
	if err := v.CancelDistribution(v, id); err != nil {
		return actionResult{}, err
	}
	return actionResult{To: templatePath(v.r.PathValue("id")) + "/distributions/" + url.PathEscape(id)}, nil
}

// deletionImpact is what is deleted with a template or some of its versions.
type deletionImpact struct {
	ID, Name   string
	Tag        string // the oldest that goes
	Tags       []tagRow
	All        bool // nothing of the template is left
	Left       string
	Freed      int64 // bytes that no version which stays has
	Using      int   // instances
	Instances  []instanceRow
	UsingNot   string
	UsingPath  string
	Holding    int // nodes
	HoldingNot string
	Seen       string // names what was shown: other versions are not deleted
	Typed      string // has to be typed
	Curl       string
}

// impactOf returns what is deleted when the versions of a template from a tag on are removed; ""
// means all.
func impactOf(v *visit, detail api.TemplateDetail, tag string) (deletionImpact, error) {
	from := 0
	if tag != "" {
		if from = slices.IndexFunc(detail.Versions,
			func(t api.TemplateVersion) bool { return t.Tag == tag }); from < 0 {
			return deletionImpact{}, &client.Error{Code: client.ErrNoVersion, Message: "Tag " + tag +
				" not found; it may have been removed."}
		}
	}
	l := deletionImpact{ID: detail.ID, Name: detail.Name, Tag: tag, All: from == 0}
	if from > 0 {
		l.Left = detail.Versions[from-1].Tag
	}
	gone, seen := map[string]bool{}, []string{}
	for _, t := range detail.Versions[from:] {
		l.Freed += t.Increment
		l.Tags = append(l.Tags,
			tagRow{
				Tag: t.Tag, Number: t.Number, Description: t.Description, Size: t.Size, Increment: t.Increment,
				Created: epoch(t.CreationDate),
			})
		gone[t.ContentID] = true
		seen = append(seen, t.Tag+" "+t.ContentID)
	}
	l.Seen = strings.Join(seen, ",")
	filter := "template:" + detail.ID
	if from > 0 {
		filter += " version>" + strconv.Itoa(detail.Versions[from-1].Number)
	}
	l.UsingPath = query("/instances", "q", filter)
	page, err := v.InstancePage(v, client.PageOptions{Filter: filter, Limit: firstRows})
	l.Using, l.UsingNot = page.Total, refusal(err)
	for _, item := range page.Instances {
		l.Instances = append(l.Instances, rowOf(item, page))
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	l.HoldingNot = refusal(err)
	for _, h := range holders {
		if slices.ContainsFunc(h.Versions, func(held api.CachedVersion) bool { return gone[held.ContentID] }) {
			l.Holding++
		}
	}
	if l.All || l.Using > 0 {
		l.Typed = detail.Name
	}
	return l, nil
}

// agreed refuses a deletion that has changed since it was shown, or was not confirmed by typing.
func (l deletionImpact) agreed(v *visit) error {
	switch {
	case v.q.Get("seen") != l.Seen:
		return &client.Error{Code: client.ErrConflict, Message: "The tags of " + l.Name +
			" have changed since the page was loaded. Nothing was deleted: review the list again."}
	case l.Typed != "" && strings.TrimSpace(v.q.Get("typed")) != l.Typed:
		return invalid("Type the name of the template, " + l.Typed + ", to confirm.")
	}
	return nil
}

func revertImpact(v *visit) (deletionImpact, error) {
	detail, err := v.Template(v, v.r.PathValue("id"))
	if err != nil {
		return deletionImpact{}, err
	}
	tag := v.q.Get("tag")
	if tag == "" && len(detail.Versions) > 0 {
		tag = detail.Versions[len(detail.Versions)-1].Tag
	}
	l, err := impactOf(v, detail, tag)
	if err == nil {
		l.Curl = curl(v, "DELETE", "/api/v1/registry/revert", jsonOf(map[string]string{"id": detail.ID, "tag": tag}))
	}
	return l, err
}

func askRevert(v *visit) (any, error) { return revertImpact(v) }

func doRevert(v *visit) (actionResult, error) {
	l, err := revertImpact(v)
	if err == nil {
		err = l.agreed(v)
	}
	if err == nil {
		err = v.RevertTemplate(v, l.ID, client.Version{Tag: l.Tag, Number: &l.Tags[0].Number})
	}
	switch {
	case err != nil:
		return actionResult{}, err
	case l.All:
		return actionResult{To: "/templates"}, nil
	}
	return actionResult{To: templatePath(l.ID)}, nil
}

func askDeleteTemplate(v *visit) (any, error) { return deleteImpact(v) }

func deleteImpact(v *visit) (deletionImpact, error) {
	detail, err := v.Template(v, v.r.PathValue("id"))
	if err != nil {
		return deletionImpact{}, err
	}
	l, err := impactOf(v, detail, "")
	if err == nil {
		l.Freed = detail.Size
		l.Curl = curl(v, "DELETE", "/api/v1/registry/vm", jsonOf(map[string]string{"id": detail.ID}))
	}
	return l, err
}

func doDeleteTemplate(v *visit) (actionResult, error) {
	l, err := deleteImpact(v)
	if err == nil {
		err = l.agreed(v)
	}
	if err != nil {
		return actionResult{}, err
	}
	out := actionResult{Back: "/templates"}
	if v.q.Get("nodes") == "1" {
		r := itemResult{Name: "Remove from node caches"}
		if answer, err := v.RemoveFromNodes(v, l.ID); err != nil {
			r.Why = refusal(err)
		} else {
			r.Said = plural(answer.RequestsSent, "node was asked", "nodes were asked")
		}
		out.Items = append(out.Items, r)
	}
	r := itemResult{Name: "Delete " + l.Name, Said: "Deleted"}
	if err := v.DeleteTemplate(v, l.ID); err != nil {
		if len(out.Items) == 0 {
			return actionResult{}, err
		}
		r.Why = refusal(err)
	}
	out.Items = append(out.Items, r)
	if out.Failed() == 0 {
		return actionResult{To: "/templates"}, nil
	}
	return out, nil
}

// removalForm is the form of a removal from nodes.
type removalForm struct {
	ID, Name string
	Node     string // id of the only one; "": all
	NodeName string
	Holders  []api.TemplateNode // the first ones
	Total    int
	Size     int64
	Curl     string
}

func askRemoveTemplate(v *visit) (any, error) {
	detail, err := v.Template(v, v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	if err != nil {
		return nil, err
	}
	r := removalForm{ID: detail.ID, Name: detail.Name, Node: v.q.Get("node")}
	body := ""
	if r.Node != "" {
		holders = slices.DeleteFunc(holders, func(h api.TemplateNode) bool { return h.NodeID != r.Node })
		body = jsonOf(map[string][]string{"node_ids": {r.Node}})
	}
	for _, h := range holders {
		r.NodeName = h.NodeName
		for _, held := range h.Versions {
			r.Size += held.Size
		}
	}
	r.Total, r.Holders = len(holders), holders[:min(len(holders), firstRows)]
	r.Curl = curl(v, "DELETE", "/api/v1/registry/vm/remove?id="+detail.ID, body)
	return r, nil
}

func doRemoveTemplate(v *visit) (actionResult, error) {
	id := v.r.PathValue("id")
	var nodes []string
	if node := v.q.Get("node"); node != "" {
		nodes = []string{node}
	}
	answer, err := v.RemoveFromNodes(v, id, nodes...)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{Back: templatePath(id), Items: []itemResult{{
		Name: "Remove from node caches", Said: plural(answer.RequestsSent, "node", "nodes") +
			" requested. A tag that an instance uses stays in the cache.",
	}}}, nil
}
