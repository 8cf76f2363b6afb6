package portal

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// The ways to choose the nodes of a distribution.
const (
	toAll     = "all"
	toGroups  = "groups"
	toMissing = "missing" // nodes that do not have the tag
	toFilter  = "filter"
	toNodes   = "nodes" // that are selected one by one
)

const (
	fewMatching = 10  // that are named below a filter
	maxChoices  = 500 // groups and tags that a form lists
	fewFound    = 20  // nodes that a search offers to select
	maxPicked   = 100 // nodes that are selected one by one
)

// distributeForm is the form of a distribution: a tag, the nodes, and what the distribution would do now.
type distributeForm struct {
	ID, Name          string
	Tags              []tagChoice // the newest first
	To                string      // how the nodes are chosen
	Filter            string
	Groups            []prefetchGroup
	MoreGroups        int      // that are not listed
	Managed           bool     // a permission group has to be named, and no group of nodes can be
	ActAs             []string // permission groups
	Group             string   // permission group that is chosen
	Total             int      // nodes that there are
	Missing           int      // of them without the tag
	Matching          []string // names of the first nodes that match the filter
	MatchCount        int
	Find              string       // search for nodes to select
	Picks             []pickedNode // those that are selected and those that were found
	Picked            int          // how many of them are selected
	MorePicks         int          // nodes found that are not listed
	PicksReason       string       // why there are none to select
	NodesHiddenReason string
	IdempotencyKey    string // names this request, so that it is made once
	Preview           *api.DistributePreview
	PreviewText       string // what the nodes would pull
	PreviewReason     string // why it cannot be previewed
	Button            string
	CurlCommand       string
}

// tagChoice is a tag of a template to choose.
type tagChoice struct {
	Tag, Label string
	Chosen     bool
}

// pickedNode is a node to select.
type pickedNode struct {
	ID, Name, State string
	Chosen          bool
}

// prefetchGroup is a group of nodes to choose.
type prefetchGroup struct {
	ID, Name string
	Nodes    int
	Chosen   bool
}

func askDistribute(v *visit) (any, error) {
	f, err := newDistributeForm(v)
	if err == nil {
		f.addEffects(v)
	}
	return f, err
}

// newDistributeForm returns the form with the values of the visit, without what they would do.
func newDistributeForm(v *visit) (distributeForm, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return distributeForm{}, err
	}
	f := distributeForm{
		ID: detail.ID, Name: detail.Name, To: v.query.Get("to"), Filter: strings.TrimSpace(v.query.Get("filter")),
		Group: strings.TrimSpace(v.query.Get("act_as")), IdempotencyKey: v.query.Get("once"),
		Find: strings.TrimSpace(v.query.Get("find")),
	}
	if f.IdempotencyKey == "" {
		f.IdempotencyKey = client.NewKey()
	}
	if !slices.Contains([]string{toAll, toGroups, toMissing, toFilter, toNodes}, f.To) {
		f.To = toAll
	}
	f.Tags = tagChoices(v, detail, v.query.Get("tag"))
	f.Managed, f.ActAs = v.canDo().managed(), v.canDo().actingGroups()
	if f.Managed && f.Group == "" && len(f.ActAs) == 1 {
		f.Group = f.ActAs[0]
	}
	return f, nil
}

// addEffects adds the nodes to choose from, and what the distribution would do now.
func (f *distributeForm) addEffects(v *visit) {
	f.addNodes(v)
	f.addPreview(v)
}

// tagChoices returns the tags of a template, the newest first; without a chosen one that is the newest.
func tagChoices(v *visit, detail api.TemplateDetail, chosen string) (list []tagChoice) {
	for _, t := range slices.Backward(detail.Versions) {
		notes := []string{format.Ago(v.now, epochTime(t.CreationDate)) + " ago", "+" + bytesize.Format(t.Increment)}
		if len(list) == 0 {
			notes = append([]string{"latest"}, notes...)
		}
		list = append(list, tagChoice{t.Tag, t.Tag + " (" + strings.Join(notes, ", ") + ")", t.Tag == chosen})
	}
	return list[:min(len(list), maxChoices)]
}

// addNodes adds how many nodes each way of choosing has.
func (f *distributeForm) addNodes(v *visit) {
	page, err := v.NodePage(v, client.PageOptions{Limit: 1})
	f.Total, f.NodesHiddenReason = page.Total, notShownReason(err)
	if err != nil {
		return
	}
	if missing, err := v.NodePage(v, client.PageOptions{Filter: f.missingFilter(), Limit: 1}); err == nil {
		f.Missing = missing.Total
	}
	if f.Filter != "" && f.To == toFilter {
		match, err := v.NodePage(v, client.PageOptions{Filter: f.Filter, Sort: "name", Limit: fewMatching})
		f.MatchCount = match.Total
		if err == nil {
			for _, n := range match.Nodes {
				f.Matching = append(f.Matching, n.NodeName)
			}
		}
	}
	f.addPicks(v)
	groups, err := v.Groups(v, client.ListOptions{})
	if err != nil || f.Managed { // else none to choose
		return
	}
	f.MoreGroups = max(len(groups)-maxChoices, 0)
	for _, g := range groups[:len(groups)-f.MoreGroups] {
		f.Groups = append(f.Groups,
			prefetchGroup{g.ID, g.Name, page.Groups[g.ID], slices.Contains(v.query["group"], g.ID)})
	}
}

// addPicks adds the nodes that are selected, and those that the search finds, in one order: a node stays in its
// place when it is selected.
func (f *distributeForm) addPicks(v *visit) {
	chosen := uniqueTexts(v.query["node"])
	f.Picked = len(chosen)
	if f.To != toNodes {
		return
	}
	found, err := v.NodePage(v, client.PageOptions{Filter: f.Find, Sort: "name", Limit: fewFound})
	f.PicksReason, f.MorePicks = notShownReason(err), max(found.Total-fewFound, 0)
	var ids []string
	for _, id := range chosen[:min(len(chosen), maxPicked)] {
		ids = append(ids, format.QuotedFilterValue(id))
	}
	if len(ids) > 0 {
		selected, err := v.NodePage(v, client.PageOptions{Filter: "id:" + strings.Join(ids, ","), Limit: maxPicked})
		if err == nil {
			found.Nodes = append(found.Nodes, selected.Nodes...)
		}
	}
	slices.SortFunc(found.Nodes, func(a, b api.Node) int {
		return cmp.Or(strings.Compare(a.NodeName, b.NodeName), strings.Compare(a.NodeID, b.NodeID))
	})
	found.Nodes = slices.CompactFunc(found.Nodes, func(a, b api.Node) bool { return a.NodeID == b.NodeID })
	for _, n := range found.Nodes {
		f.Picks = append(f.Picks, pickedNode{n.NodeID, n.NodeName, n.State, slices.Contains(chosen, n.NodeID)})
	}
}

// missingFilter selects the nodes that do not have the chosen tag. Those with an older one pull the difference.
func (f *distributeForm) missingFilter() string {
	return "-template:" + format.QuotedFilterValue(f.ID+":"+f.chosenTag())
}

// chosenTag returns the tag that is distributed: without a chosen one the newest; "" where there is none.
func (f *distributeForm) chosenTag() string {
	for _, t := range f.Tags {
		if t.Chosen {
			return t.Tag
		}
	}
	if len(f.Tags) > 0 {
		return f.Tags[0].Tag
	}
	return ""
}

// addPreview adds what the distribution would do now.
func (f *distributeForm) addPreview(v *visit) {
	f.Button = "Prefetch"
	ask, err := f.request(v)
	if err == nil {
		f.CurlCommand = curlCommand(v, "POST", "/api/v1/registry/vm/distribute", format.JSON(ask))
		var p api.DistributePreview
		if p, err = v.PreviewDistribution(v, ask); err == nil {
			f.Preview, f.PreviewText = &p, pulledText(&p)
			if p.ToPull > 0 {
				f.Button = "Prefetch to " + format.Plural(p.ToPull, "node", "nodes")
			}
		}
	}
	f.PreviewReason = notShownReason(f.explain(err))
}

// explain adds to a refusal which right may be missing: nodes without it do not match.
func (f *distributeForm) explain(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || !f.Managed || f.Group == "" || refused.Code != client.ErrRefused {
		return err
	}
	more := *refused
	more.Message += ", or the permission group " + f.Group + " needs the permission distribute on them"
	return &more
}

// request returns the request that the form stands for.
func (f *distributeForm) request(v *visit) (client.DistributeRequest, error) {
	ask := client.DistributeRequest{
		TemplateID: f.ID, Tag: v.query.Get("tag"), Group: f.Group, IdempotencyKey: f.IdempotencyKey,
	}
	if ask.Tag == "" && len(f.Tags) > 0 {
		ask.Tag = f.Tags[0].Tag
	}
	switch f.To {
	case toGroups:
		if ask.GroupIDs = v.query["group"]; len(ask.GroupIDs) == 0 {
			return ask, formError("Choose one or more groups of nodes.")
		}
	case toMissing:
		ask.Filter = f.missingFilter()
	case toNodes:
		switch ask.NodeIDs = uniqueTexts(v.query["node"]); {
		case len(ask.NodeIDs) == 0:
			return ask, formError("Select one or more nodes.")
		case len(ask.NodeIDs) > maxPicked:
			return ask, formError("At most " + format.Plural(maxPicked, "node", "nodes") +
				" are selected one by one. Use a filter for more.")
		}
	case toFilter:
		if ask.Filter = f.Filter; ask.Filter == "" {
			return ask, formError("Write a name or a filter for nodes, for example name:mac-*.")
		}
	}
	return ask, nil
}

// pulledText describes what nodes would pull.
func pulledText(p *api.DistributePreview) string {
	switch {
	case p.Nodes == 0:
		return "No node matches."
	case p.ToPull == 0:
		return "No node has to pull it."
	case p.ToPull == 1:
		return "1 node pulls up to " + bytesize.Format(p.NodeBytes) + "."
	}
	return format.Count(p.ToPull) + " nodes pull up to " + bytesize.Format(p.NodeBytes) + " each, at most " +
		bytesize.Format(p.TotalBytes) + " together."
}

func doDistribute(v *visit) (actionResult, error) {
	f, err := newDistributeForm(v)
	if err != nil {
		return actionResult{}, err
	}
	if v.query.Get("preview") == "1" {
		f.addEffects(v)
		return actionResult{Form: f}, nil
	}
	ask, err := f.request(v)
	if err != nil { // which the form states in the place of the preview
		f.addEffects(v)
		return actionResult{Form: f, Invalid: true}, nil
	}
	id, err := v.Distribute(v, ask)
	if err != nil {
		return actionResult{}, f.explain(err)
	}
	return actionResult{ResultPath: templatePath(ask.TemplateID) + "/distributions/" + id}, nil
}
