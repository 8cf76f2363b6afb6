package portal

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// templateView is the page of one template.
type templateView struct {
	ID, Name, Arch            string
	Size                      int64
	Pushed, Pulled            time.Time
	Tags                      []tagRow // the newest first
	CachingNodes              []cachingNodeRow
	CachingNodeCount          int // nodes
	NodesHiddenReason         string
	UsingInstances            int // instances that are not terminated
	InstancesHiddenReason     string
	Pools                     int // warm pools of it
	PoolsHiddenReason         string
	Distributions             []distributionProgress
	DistributionsHiddenReason string
	CurlCommand               string
}

// tagRow is a version of a template.
type tagRow struct {
	Tag, Description     string
	Number               int
	Size, IncrementBytes int64
	Created, Pulled      time.Time
	Suspended            bool // it has the memory of a running machine
	Nodes                int  // that hold it
	FirstCachingNodes    []api.TemplateNode
	Scan                 *scanSummary
	ContentID            string
}

// cachingNodeRow is a node that caches versions of a template.
type cachingNodeRow struct {
	ID, Name, State string
	Tags            []string
	StaleVersions   int // versions that the registry no longer has
	Size            int64
}

// distributionProgress is how far a distribution is.
type distributionProgress struct {
	ID, Template, Tag     string
	RequestedAt           time.Time
	Done, Failed, Pending int
	Progress              float64 // of all nodes, 0 to 1
	Reason                string  // the first failure
}

// Nodes returns the number of nodes of the distribution.
func (s distributionProgress) Nodes() int { return s.Done + s.Failed + s.Pending }

const (
	fewNames         = 3   // of nodes in a cell
	fewDistributions = 8   // distributions on the page of a template
	maxCachingNodes  = 100 // rows of nodes on the page of a template
)

func showTemplate(v *visit) (any, error) {
	detail, err := v.Template(v, v.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.title, v.rightsQuery.Template = detail.Name, detail.ID
	out := templateView{
		ID: detail.ID, Name: detail.Name, Arch: detail.Arch, Size: detail.Size, Pushed: epochTime(detail.LastPush),
		Pulled:      epochTime(detail.LastPull),
		CurlCommand: curlCommand(v, "GET", "/api/v1/registry/vm?id="+detail.ID, ""),
	}
	for _, t := range slices.Backward(detail.Versions) {
		out.Tags = append(out.Tags, tagRow{
			Tag: t.Tag, Description: t.Description, Number: t.Number, Size: t.Size, IncrementBytes: t.Increment,
			ContentID: t.ContentID,
			Created:   epochTime(t.CreationDate), Pulled: epochTime(t.LastPull), Suspended: t.StateFile != "",
			Scan: newScanSummary(t.Scan),
		})
	}
	holders, err := v.TemplateNodes(v, detail.ID)
	out.NodesHiddenReason = notShownReason(err)
	out.addCachingNodes(holders)
	using, err := v.InstancePage(v, client.PageOptions{Filter: "template:" + detail.ID + " " + alive, Limit: 1})
	out.UsingInstances, out.InstancesHiddenReason = using.Total, notShownReason(err)
	out.Pools, out.PoolsHiddenReason = v.poolCount("template:" + detail.ID)
	out.Distributions, err = distributionsOf(v, detail.ID)
	out.DistributionsHiddenReason = notShownReason(err)
	return out, nil
}

// addCachingNodes records which nodes have which versions cached.
func (t *templateView) addCachingNodes(holders []api.TemplateNode) {
	t.CachingNodeCount = len(holders)
	for _, h := range holders {
		row := cachingNodeRow{ID: h.NodeID, Name: h.NodeName, State: h.State}
		sizes := cachedSizes(h)
		known := map[string]bool{}
		for i := range t.Tags { // tags of equal content are all cached
			tag := &t.Tags[i]
			if _, cached := sizes[tag.ContentID]; !cached {
				continue
			}
			known[tag.ContentID] = true
			row.Tags = append(row.Tags, tag.Tag)
			if tag.Nodes++; len(tag.FirstCachingNodes) < fewNames {
				tag.FirstCachingNodes = append(tag.FirstCachingNodes, h)
			}
		}
		row.StaleVersions = len(sizes) - len(known)
		for _, size := range sizes {
			row.Size += size
		}
		if len(t.CachingNodes) < maxCachingNodes {
			t.CachingNodes = append(t.CachingNodes, row)
		}
	}
}

// cachedSizes returns the sizes of what a node has cached, by content: several versions may have the same.
func cachedSizes(n api.TemplateNode) map[string]int64 {
	sizes := map[string]int64{}
	for _, held := range n.Versions {
		sizes[held.ContentID] = held.Size
	}
	return sizes
}

// distributionsOf returns the distributions of a template that are open or of the last day, the newest first.
func distributionsOf(v *visit, id string) ([]distributionProgress, error) {
	found := map[string]api.Distribution{}
	for _, which := range []string{"state:open", "age<24h"} {
		list, err := v.Distributions(v, client.ListOptions{Filter: "template:" + id + " " + which})
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			found[d.Request.RequestID] = d
		}
	}
	var out []distributionProgress
	for _, d := range found {
		out = append(out, newDistributionProgress(d))
	}
	slices.SortFunc(out, func(a, b distributionProgress) int {
		return cmp.Or(b.RequestedAt.Compare(a.RequestedAt), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), fewDistributions)], nil
}

func newDistributionProgress(d api.Distribution) distributionProgress {
	s := distributionProgress{
		ID: d.Request.RequestID, Template: d.Request.TemplateID, Tag: d.Request.Tag,
		RequestedAt: d.Request.TimeRequested,
	}
	for _, id := range slices.Sorted(maps.Keys(d.Status)) {
		switch on := d.Status[id]; {
		case on.Status:
			s.Done++
			s.Progress++
		case on.Error != "":
			s.Failed++
			s.Reason = cmp.Or(s.Reason, on.Error)
		default:
			s.Pending++
			s.Progress += on.Progress
		}
	}
	if n := s.Nodes(); n > 0 {
		s.Progress /= float64(n)
	}
	return s
}

// distributionView is the page of one distribution.
type distributionView struct {
	distributionProgress
	Name        string // of the template
	Rows        []distributionRow
	Pager       pager
	CurlCommand string
}

// distributionRow is how far a distribution is on a node.
type distributionRow struct {
	ID, Name string
	State    string // Done, Failed, Pulling or Waiting
	Progress float64
	Reason   string
}

// distributionStateOrder is the order of the states in the table: what needs an operator comes first.
var distributionStateOrder = []string{"Failed", "Pulling", "Waiting", "Done"}

func showDistribution(v *visit) (any, error) {
	id := v.request.PathValue("request")
	d, err := v.Distribution(v, id)
	if err == nil && d.Request.TemplateID != strings.ToLower(v.request.PathValue("id")) {
		err = &client.Error{Code: client.ErrNotFound, Message: "Not found"}
	}
	if err != nil {
		return nil, err
	}
	out := distributionView{
		distributionProgress: newDistributionProgress(d), Name: d.Request.TemplateID,
		CurlCommand: curlCommand(v, "GET",
			"/api/v1/registry/vm/distribute?id="+url.QueryEscape(id), ""),
	}
	if t, err := v.Template(v, d.Request.TemplateID); err == nil {
		out.Name = t.Name
	}
	v.title = "Distribution of " + out.Name
	var all []distributionRow
	for node, on := range d.Status {
		row := distributionRow{
			ID: node, Name: format.ShortID(node), State: "Waiting", Progress: on.Progress, Reason: on.Error,
		}
		switch {
		case on.Status:
			row.State, row.Progress = "Done", 1
		case on.Error != "":
			row.State = "Failed"
		case on.Progress > 0:
			row.State = "Pulling"
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b distributionRow) int {
		return cmp.Or(cmp.Compare(slices.Index(distributionStateOrder, a.State),
			slices.Index(distributionStateOrder, b.State)),
			cmp.Compare(a.ID, b.ID))
	})
	a := v.tableQuery("")
	out.Rows = pageRows(&a, all)
	out.Pager = a.pager(len(out.Rows), len(all))
	var ids []string
	for _, row := range out.Rows {
		ids = append(ids, row.ID)
	}
	names := v.nodeNames(ids)
	for i, row := range out.Rows {
		out.Rows[i].Name = cmp.Or(names[row.ID], row.Name)
	}
	return out, nil
}

// maxFilterIDs is the maximum number of IDs in one filter.
const maxFilterIDs = 50

// nodeNames returns the names of nodes by their IDs, as far as the visitor may see them.
func (v *visit) nodeNames(ids []string) map[string]string {
	names := map[string]string{}
	for some := range slices.Chunk(ids, maxFilterIDs) {
		some = slices.DeleteFunc(slices.Clone(some), func(id string) bool { return uuid.Validate(id) != nil })
		if len(some) == 0 {
			continue
		}
		page, err := v.NodePage(v, client.PageOptions{Filter: "id:" + strings.Join(some, ","), Limit: maxFilterIDs})
		if err != nil {
			break
		}
		for _, n := range page.Nodes {
			names[n.NodeID] = n.NodeName
		}
	}
	return names
}

// scanView is the page of a scanner's findings in a version.
type scanView struct {
	ID, Name, Tag string
	Summary       *scanSummary
	Matches       []scanMatch
	More          int // that are left out
	Raw           string
	CurlCommand   string
}

// scanMatch is a vulnerability of a package.
type scanMatch struct {
	ID, Severity, Tone string
	Package, Version   string
	FixedVersions      string
}

const maxMatches = 500 // on the page; the report has all

func showTemplateScan(v *visit) (any, error) {
	id, tag := v.request.PathValue("id"), v.query.Get("tag")
	detail, err := v.Template(v, id)
	if err != nil {
		return nil, err
	}
	scan, err := v.TemplateScan(v, id, client.Version{Tag: tag})
	if errors.Is(err, client.ErrNotFound) {
		return nil,
			&client.Error{Code: client.ErrNotFound, Message: "No scan results for " + cmp.Or(tag, "the latest tag") +
				" of " + detail.Name + ". Create them with: imagescan registry"}
	}
	if err != nil {
		return nil, err
	}
	q := url.Values{"id": {detail.ID}}
	if tag != "" {
		q.Set("tag", tag)
	}
	out := scanView{
		ID: detail.ID, Name: detail.Name, Tag: tag, Summary: newScanSummary(&scan.ScanSummary),
		CurlCommand: curlCommand(v,
			"GET", "/api/v1/registry/vm/scan?"+q.Encode(), ""),
	}
	out.Raw = "/api/v1/registry/vm/scan?" + q.Encode()
	v.title = "Scan of " + detail.Name
	var report api.ScanReport
	if json.Unmarshal(scan.Report, &report) == nil { // that of another scanner can be read as it is
		out.addMatches(report.Matches)
	}
	return out, nil
}

func (s *scanView) addMatches(matches []api.ScanMatch) {
	for _, m := range matches {
		if len(s.Matches) == maxMatches {
			s.More = len(matches) - maxMatches
			return
		}
		s.Matches = append(s.Matches, scanMatch{
			ID: m.Vulnerability.ID, Severity: m.Vulnerability.Severity, Tone: severityTones[m.Vulnerability.Severity],
			Package: m.Artifact.Name, Version: m.Artifact.Version,
			FixedVersions: strings.Join(m.Vulnerability.FixedVersions, ", "),
		})
	}
}

// severityTones are the colors of severities, shown in addition to their names.
var severityTones = map[string]string{"critical": "bad", "high": "bad", "medium": "warn"}

// NewerTag returns the tag after the i-th, which is the first that a revert to the i-th deletes; "" for the newest.
func (t templateView) NewerTag(i int) string {
	if i == 0 {
		return ""
	}
	return t.Tags[i-1].Tag
}
