package portal

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// templatePath is the page of a template.
func templatePath(id string) string { return "/templates/" + url.PathEscape(id) }

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
	FreedBytes            int64  // bytes that no version which stays has
	UsingInstances        int    // instances that are not terminated
	UsingStates           string // how many of them are in which state
	Instances             []instanceRow
	InstancesHiddenReason string
	InstancesPath         string
	CachingNodeCount      int // nodes
	NodesHiddenReason     string
	NodesLimited          bool   // there may be nodes that the visitor may not see
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
	for _, t := range detail.Versions[:from] { // tags that stay may have equal content
		delete(gone, t.ContentID)
	}
	filter := "template:" + detail.ID + " " + alive
	if from > 0 {
		filter += " version>" + strconv.Itoa(detail.Versions[from-1].Number)
	}
	l.InstancesPath = format.Path("/instances", "q", filter)
	page, err := v.InstancePage(v, client.PageOptions{Filter: filter, Limit: firstRows})
	l.UsingInstances, l.InstancesHiddenReason = page.Total, notShownReason(err)
	l.UsingStates = statesText(page.States)
	for _, item := range page.Instances {
		l.Instances = append(l.Instances, newInstanceRow(item, page))
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	l.NodesHiddenReason, l.NodesLimited = notShownReason(err), v.canDo().seesSomeOnly()
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

// statesText names the states of instances with their numbers, in the order of an instance's life.
func statesText(counts map[string]int) string {
	var parts []string
	for _, name := range instanceStates() {
		if n := counts[name]; n > 0 {
			parts = append(parts, format.Count(n)+" "+name)
		}
	}
	return strings.Join(parts, ", ")
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
			format.JSON(map[string]string{"id": detail.ID, "tag": tag}))
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
		l.CurlCommand = curlCommand(v, "DELETE", "/api/v1/registry/vm", format.JSON(map[string]string{"id": detail.ID}))
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
			r.Said = format.Plural(answer.RequestsSent, "node was asked", "nodes were asked")
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
		body = format.JSON(map[string][]string{"node_ids": {r.Node}})
	}
	for _, h := range holders {
		r.NodeName = h.NodeName
		for _, size := range cachedSizes(h) {
			r.Size += size
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
		Name: "Remove from node caches", Said: format.Plural(answer.RequestsSent, "node", "nodes") +
			" requested. A tag that an instance uses stays in the cache.",
	}}}, nil
}
