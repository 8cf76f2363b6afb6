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
	ID, Name          string
	Tags              []string // the newest first
	Tag               string   // that is chosen
	Groups            []api.Group
	Managed           bool     // a permission group has to be named, and no group of nodes can be
	ActAs             []string // permission groups
	Nodes             []api.Node
	Total             int // nodes that there are
	NodesHiddenReason string
	IdempotencyKey    string // names this request, so that it is made once
	CurlCommand       string
}

const maxNodeChoices = 200 // nodes that can be ticked

func askDistribute(v *visit) (any, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	f := distributeForm{ID: detail.ID, Name: detail.Name, Tag: v.query.Get("tag"), IdempotencyKey: client.NewKey()}
	for _, t := range slices.Backward(detail.Versions) {
		f.Tags = append(f.Tags, t.Tag)
	}
	page, err := v.NodePage(v, client.PageOptions{Sort: "name", Limit: maxNodeChoices})
	f.Nodes, f.Total, f.NodesHiddenReason = page.Nodes, page.Total, notShownReason(err)
	f.Managed, f.ActAs = v.canDo().managed(), v.canDo().actingGroups()
	if groups, err := v.Groups(v, client.ListOptions{}); err == nil && !f.Managed { // else none to choose
		f.Groups = groups
	}
	f.CurlCommand = curlCommand(v, "POST", "/api/v1/registry/vm/distribute",
		jsonText(map[string]string{"template_id": detail.ID, "tag": cmp.Or(f.Tag, firstOrEmpty(f.Tags))}))
	return f, nil
}

func firstOrEmpty(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func doDistribute(v *visit) (actionResult, error) {
	ask := client.DistributeRequest{
		TemplateID: v.request.PathValue("id"), Tag: v.query.Get("tag"),
		Group: strings.TrimSpace(v.query.Get("act_as")), IdempotencyKey: v.query.Get("once"),
	}
	switch to := v.query.Get("to"); to {
	case "all":
	case "group":
		if ask.GroupID = v.query.Get("group"); ask.GroupID == "" {
			return actionResult{}, formError("Choose a group of nodes.")
		}
	case "filter":
		filter := strings.TrimSpace(v.query.Get("filter"))
		if filter == "" {
			return actionResult{}, formError("Write a filter for nodes, for example name:mac-*.")
		}
		nodes, err := v.Nodes(v, client.ListOptions{Filter: filter})
		if err != nil {
			return actionResult{}, err
		}
		if len(nodes) == 0 {
			return actionResult{}, formError("No node matches the filter " + filter + ".")
		}
		for _, n := range nodes {
			ask.NodeIDs = append(ask.NodeIDs, n.NodeID)
		}
	default:
		if ask.NodeIDs = v.query["node"]; len(ask.NodeIDs) == 0 {
			return actionResult{}, formError("No node selected.")
		}
	}
	id, err := v.Distribute(v, ask)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{ResultPath: templatePath(ask.TemplateID) + "/distributions/" + id}, nil
}

func askCancelDistribution(v *visit) (any, error) {
	d, err := v.Distribution(v, v.request.PathValue("request"))
	if err != nil {
		return nil, err
	}
	return newDistributionProgress(d), nil
}

func doCancelDistribution(v *visit) (actionResult, error) {
	id := v.request.PathValue("request")
	if err := v.CancelDistribution(v, id); err != nil {
		return actionResult{}, err
	}
	return actionResult{ResultPath: templatePath(v.request.PathValue("id")) + "/distributions/" + url.PathEscape(id)},
		nil
}

// deletionImpact is what is deleted with a template or some of its versions.
type deletionImpact struct {
	ID, Name              string
	Tag                   string // the oldest that goes
	Tags                  []tagRow
	All                   bool // nothing of the template is left
	Left                  string
	FreedBytes            int64 // bytes that no version which stays has
	UsingInstances        int   // instances
	Instances             []instanceRow
	InstancesHiddenReason string
	InstancesPath         string
	CachingNodeCount      int // nodes
	NodesHiddenReason     string
	ShownVersions         string // names what was shown: other versions are not deleted
	ConfirmText           string // has to be typed
	CurlCommand           string
}

// newDeletionImpact returns what is deleted when the versions of a template from a tag on are removed; ""
// means all.
func newDeletionImpact(v *visit, detail api.TemplateDetail, tag string) (deletionImpact, error) {
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
		l.FreedBytes += t.Increment
		l.Tags = append(l.Tags,
			tagRow{
				Tag: t.Tag, Number: t.Number, Description: t.Description, Size: t.Size, IncrementBytes: t.Increment,
				Created: epochTime(t.CreationDate),
			})
		gone[t.ContentID] = true
		seen = append(seen, t.Tag+" "+t.ContentID)
	}
	l.ShownVersions = strings.Join(seen, ",")
	filter := "template:" + detail.ID
	if from > 0 {
		filter += " version>" + strconv.Itoa(detail.Versions[from-1].Number)
	}
	l.InstancesPath = pathWithQuery("/instances", "q", filter)
	page, err := v.InstancePage(v, client.PageOptions{Filter: filter, Limit: firstRows})
	l.UsingInstances, l.InstancesHiddenReason = page.Total, notShownReason(err)
	for _, item := range page.Instances {
		l.Instances = append(l.Instances, newInstanceRow(item, page))
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	l.NodesHiddenReason = notShownReason(err)
	for _, h := range holders {
		if slices.ContainsFunc(h.Versions, func(held api.CachedVersion) bool { return gone[held.ContentID] }) {
			l.CachingNodeCount++
		}
	}
	if l.All || l.UsingInstances > 0 {
		l.ConfirmText = detail.Name
	}
	return l, nil
}

// checkConfirmed refuses a deletion that has changed since it was shown, or was not confirmed by typing.
func (l deletionImpact) checkConfirmed(v *visit) error {
	switch {
	case v.query.Get("seen") != l.ShownVersions:
		return &client.Error{Code: client.ErrConflict, Message: "The tags of " + l.Name +
			" have changed since the page was loaded. Nothing was deleted: review the list again."}
	case l.ConfirmText != "" && strings.TrimSpace(v.query.Get("typed")) != l.ConfirmText:
		return formError("Type the name of the template, " + l.ConfirmText + ", to confirm.")
	}
	return nil
}

func revertImpact(v *visit) (deletionImpact, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return deletionImpact{}, err
	}
	tag := v.query.Get("tag")
	if tag == "" && len(detail.Versions) > 0 {
		tag = detail.Versions[len(detail.Versions)-1].Tag
	}
	l, err := newDeletionImpact(v, detail, tag)
	if err == nil {
		l.CurlCommand = curlCommand(v, "DELETE", "/api/v1/registry/revert",
			jsonText(map[string]string{"id": detail.ID, "tag": tag}))
	}
	return l, err
}

func askRevert(v *visit) (any, error) { return revertImpact(v) }

func doRevert(v *visit) (actionResult, error) {
	l, err := revertImpact(v)
	if err == nil {
		err = l.checkConfirmed(v)
	}
	if err == nil {
		err = v.RevertTemplate(v, l.ID, client.Version{Tag: l.Tag, Number: &l.Tags[0].Number})
	}
	switch {
	case err != nil:
		return actionResult{}, err
	case l.All:
		return actionResult{ResultPath: "/templates"}, nil
	}
	return actionResult{ResultPath: templatePath(l.ID)}, nil
}

func askDeleteTemplate(v *visit) (any, error) { return templateDeletionImpact(v) }

func templateDeletionImpact(v *visit) (deletionImpact, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return deletionImpact{}, err
	}
	l, err := newDeletionImpact(v, detail, "")
	if err == nil {
		l.FreedBytes = detail.Size
		l.CurlCommand = curlCommand(v, "DELETE", "/api/v1/registry/vm", jsonText(map[string]string{"id": detail.ID}))
	}
	return l, err
}

func doDeleteTemplate(v *visit) (actionResult, error) {
	l, err := templateDeletionImpact(v)
	if err == nil {
		err = l.checkConfirmed(v)
	}
	if err != nil {
		return actionResult{}, err
	}
	out := actionResult{Back: "/templates"}
	if v.query.Get("nodes") == "1" {
		r := itemResult{Name: "Remove from node caches"}
		if answer, err := v.RemoveFromNodes(v, l.ID); err != nil {
			r.Reason = notShownReason(err)
		} else {
			r.Said = pluralText(answer.RequestsSent, "node was asked", "nodes were asked")
		}
		out.Items = append(out.Items, r)
	}
	r := itemResult{Name: "Delete " + l.Name, Said: "Deleted"}
	if err := v.DeleteTemplate(v, l.ID); err != nil {
		if len(out.Items) == 0 {
			return actionResult{}, err
		}
		r.Reason = notShownReason(err)
	}
	out.Items = append(out.Items, r)
	if out.Failed() == 0 {
		return actionResult{ResultPath: "/templates"}, nil
	}
	return out, nil
}

// removalForm is the form of a removal from nodes.
type removalForm struct {
	ID, Name     string
	Node         string // id of the only one; "": all
	NodeName     string
	CachingNodes []api.TemplateNode // the first ones
	Total        int
	Size         int64
	CurlCommand  string
}

func askRemoveTemplate(v *visit) (any, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	if err != nil {
		return nil, err
	}
	r := removalForm{ID: detail.ID, Name: detail.Name, Node: v.query.Get("node")}
	body := ""
	if r.Node != "" {
		holders = slices.DeleteFunc(holders, func(h api.TemplateNode) bool { return h.NodeID != r.Node })
		body = jsonText(map[string][]string{"node_ids": {r.Node}})
	}
	for _, h := range holders {
		r.NodeName = h.NodeName
		for _, held := range h.Versions {
			r.Size += held.Size
		}
	}
	r.Total, r.CachingNodes = len(holders), holders[:min(len(holders), firstRows)]
	r.CurlCommand = curlCommand(v, "DELETE", "/api/v1/registry/vm/remove?id="+detail.ID, body)
	return r, nil
}

func doRemoveTemplate(v *visit) (actionResult, error) {
	id := v.request.PathValue("id")
	var nodes []string
	if node := v.query.Get("node"); node != "" {
		nodes = []string{node}
	}
	answer, err := v.RemoveFromNodes(v, id, nodes...)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{Back: templatePath(id), Items: []itemResult{{
		Name: "Remove from node caches", Said: pluralText(answer.RequestsSent, "node", "nodes") +
			" requested. A tag that an instance uses stays in the cache.",
	}}}, nil
}
