package portal

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// liveResults are the current states of what an action changed. The page asks for them again when something changes;
// what failed is not in them, and stays on the page.
type liveResults struct {
	Kind   string // instances or nodes
	Noun   string // of one
	Rows   []liveRow
	More   int // things without a row
	Counts []stateCount
}

// liveRow is one thing with its current state.
type liveRow struct {
	ID, Name, Path string
	State          string // "": it is gone, or hidden
	Hidden         string // why its state is not shown; "": it is, or the thing is gone
	Note           string
}

// stateCount is how many things are in a state.
type stateCount struct {
	State  string // "": gone, or hidden
	Hidden bool
	Count  int
}

// resultKind is a kind of things with live results.
type resultKind struct {
	noun   string
	topics Topics
	read   func(v *visit, ids []string) []liveRow
}

// resultKinds are the kinds of things with live results.
var resultKinds = map[string]resultKind{
	"instances": {"instance", Instances, instanceStatesOf},
	"nodes":     {"node", Nodes, nodeStatesOf},
}

// maxLive is how many things have a live state on one page: each is read separately.
const maxLive = 200

// newLiveResults returns the current states of things.
func newLiveResults(kind string, rows []liveRow, more int) *liveResults {
	out := &liveResults{Kind: kind, Noun: resultKinds[kind].noun, Rows: rows, More: more}
	for _, r := range rows {
		kind := stateCount{State: r.State, Hidden: r.Hidden != ""}
		i := slices.IndexFunc(out.Counts, func(t stateCount) bool {
			return t.State == kind.State && t.Hidden == kind.Hidden
		})
		if i < 0 {
			out.Counts = append(out.Counts, kind)
			i = len(out.Counts) - 1
		}
		out.Counts[i].Count++
	}
	slices.SortFunc(out.Counts, func(a, b stateCount) int { return b.Count - a.Count })
	return out
}

// instanceStatesOf returns the states of instances, of which some may be terminated or forgotten. It reads each one:
// a filter would search all instances for each ID.
func instanceStatesOf(v *visit, ids []string) []liveRow {
	rows := map[string]liveRow{}
	for i, id := range ids {
		vm, err := v.Instance(v, id)
		if err == nil {
			one := newInstanceRow(api.InstanceItem{
				InstanceID: id, Name: &vm.Name, ExternalID: &vm.ExternalID, VM: vm,
			}, api.InstancePage{})
			rows[id] = liveRow{Name: one.Name, State: one.State, Note: one.Note}
			continue
		}
		if client.CodeOf(err) != client.ErrNotFound { // nor will the others be shown
			hideRows(rows, ids[i:], err)
			break
		}
		past, err := v.HistoryInstance(v, id)
		if err == nil {
			rows[id] = liveRow{Name: past.Name, State: string(farm.Terminated), Note: past.Message}
		} else if client.CodeOf(err) != client.ErrNotFound {
			hideRows(rows, []string{id}, err)
		}
	}
	return orderedRows(ids, rows, "/instances/", "instance")
}

// nodeStatesOf returns the states of nodes.
func nodeStatesOf(v *visit, ids []string) []liveRow {
	rows := map[string]liveRow{}
	for _, some := range slices.Collect(slices.Chunk(ids, namesAtOne)) {
		page, err := v.NodePage(v, client.PageOptions{Filter: "id:" + strings.Join(some, ","), Limit: namesAtOne})
		if err != nil {
			hideRows(rows, some, err)
		}
		for _, n := range page.Nodes {
			rows[n.NodeID] = liveRow{Name: n.NodeName, State: n.State, Note: nodeStateReason(n)}
		}
	}
	return orderedRows(ids, rows, "/nodes/", "node")
}

// hideRows states why the states of things are not shown.
func hideRows(rows map[string]liveRow, ids []string, err error) {
	for _, id := range ids {
		rows[id] = liveRow{Hidden: notShownReason(err)}
	}
}

// orderedRows returns rows in the order of IDs. What is gone has no link.
func orderedRows(ids []string, rows map[string]liveRow, path, noun string) (all []liveRow) {
	for _, id := range ids {
		row := rows[id]
		row.ID, row.Name = id, cmp.Or(row.Name, noun+" "+format.ShortID(id))
		if row.State != "" || row.Hidden != "" {
			row.Path = path + url.PathEscape(id)
		}
		all = append(all, row)
	}
	return all
}

// withStates sets the names of the items of a result, and the live states of those that succeeded.
func (o *actionResult) withStates(v *visit, kind string, ids []string) {
	known := ids[:min(maxLive, len(ids))]
	var changed []liveRow
	for i, row := range resultKinds[kind].read(v, known) {
		o.Items[i].Name = row.Name
		if o.Items[i].Reason == "" {
			changed = append(changed, row)
		}
	}
	if len(changed) > 0 {
		o.Live = newLiveResults(kind, changed, len(ids)-len(known))
	}
}

// serveResults shows the states of things again. It changes nothing: their IDs may be too many for an address.
func (p *portal) serveResults(w http.ResponseWriter, r *http.Request) {
	g := page{templateName: "done", title: "Result"}
	kind := r.PathValue("kind")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.showError(w, r, g, formUnreadable(err))
		return
	}
	ids := wellFormedIDs(r.PostForm["chosen"])
	k, known := resultKinds[kind]
	if !known || len(ids) == 0 || len(ids) > maxLive {
		p.showError(w, r, g, formError("The result is about nothing, or about too much."))
		return
	}
	v, err := p.newVisit(r)
	if err != nil {
		p.showError(w, r, g, err)
		return
	}
	more, _ := strconv.Atoi(r.PostForm.Get("more"))
	shown := p.newView(v, g, g.title, actionResult{Live: newLiveResults(kind, k.read(v, ids), max(0, more))})
	if v.authErr != nil {
		p.showError(w, r, g, v.authErr)
		return
	}
	p.showView(w, r, http.StatusOK, g.templateName, shown)
}

// wellFormedIDs returns the IDs that may be in a filter.
func wellFormedIDs(all []string) []string {
	return slices.DeleteFunc(uniqueTexts(all), func(id string) bool {
		return id == "" || len(id) > 36 || strings.ContainsAny(id, " ,*\"():")
	})
}
