package portal

import (
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) searchPages() []page {
	return []page{{pattern: "/search", templateName: "search", title: "Search", buildView: searchAll}}
}

// searchView is the page of a search over all kinds of records. The search over a page shows its results.
type searchView struct {
	Text       string
	Kinds      []searchKind
	Commands   []command
	Incomplete []string // kinds of which some may be missing
	Asked      bool
	Limited    bool // some records are not for the visitor
}

// searchKind is the matches of one kind.
type searchKind struct {
	Name, Icon string
	Matches    []searchMatch
	Total      int    // matches that the list has
	AllPath    string // of the list of all matches; "": there is none
}

// searchMatch is a record that was found.
type searchMatch struct {
	Name, Path, Detail, State string
}

// searchKinds are the kinds of records, in their order, with the pages of the records.
var searchKinds = []struct{ kind, name, icon, path, list string }{
	{"instance", "Instances", "vm", "/instances/", "/instances"},
	{"node", "Nodes", "server", "/nodes/", "/nodes"},
	{"template", "Templates", "layers", "/templates/", "/templates"},
	{"group", "Groups", "groups", groupsOfID, ""},
	{"key", "API keys", "key", "/keys#k-", ""},
}

// command is what can be done from everywhere.
type command struct {
	link
	action       string // that it begins, as in actionLinks; "": it needs no permission
	DeniedReason string // which permission is missing; "": none
}

var commands = []command{
	{link: link{"Start an instance", "/instances/start"}, action: "start"},
	{link: link{"Add a node", "/nodes/join"}, action: "add node"},
	{link: link{"Create a pool", "/pools/new"}, action: "create pool"},
	{link: link{"Create an API key", "/keys/create"}, action: "make key"},
	{link: link{"Show failed instances", "/instances?q=state%3Aerror"}, action: "see instances"},
	{link: link{"Show the queue", "/instances?q=phase%3Aqueued"}, action: "see instances"},
	{link: link{"Show what a vulnerability affects", "/affected"}, action: "see instances"},
	{link: link{"Show lost nodes", "/nodes?q=state%3Aoffline%2Cunhealthy"}, action: "see nodes"},
}

const searchMatches = 6 // of each kind

func searchAll(v *visit) (any, error) {
	out := searchView{Text: strings.TrimSpace(v.query.Get("q")), Limited: v.canDo().isLimited()}
	for _, c := range append(commands, areaLinks()...) {
		if strings.Contains(strings.ToLower(c.Name), strings.ToLower(out.Text)) {
			c.DeniedReason = v.canDo().DeniedReason(c.action, "")
			out.Commands = append(out.Commands, c)
		}
	}
	if isVulnerability(out.Text) {
		to := link{"Show what " + out.Text + " affects", format.Path("/affected", "q", out.Text)}
		out.Commands = append([]command{{link: to}}, out.Commands...)
	}
	if out.Text == "" {
		return out, nil
	}
	found, err := v.Search(v, out.Text, searchMatches)
	if err != nil {
		return nil, err
	}
	out.Asked, out.Incomplete = true, found.Incomplete
	for _, k := range searchKinds {
		kind := searchKind{Name: k.name, Icon: k.icon, Total: found.Totals[k.kind]}
		for _, m := range found.Matches {
			if m.Kind == k.kind {
				kind.Matches = append(kind.Matches, newSearchMatch(m, k.path))
			}
		}
		if k.kind == api.SearchInstance {
			kind.Total -= found.Terminated
		}
		if k.list != "" && kind.Total > len(kind.Matches) {
			kind.AllPath = format.Path(k.list, "q", wordsFilter(out.Text))
		}
		if len(kind.Matches) > 0 {
			out.Kinds = append(out.Kinds, kind)
		}
	}
	return out, nil
}

// wordsFilter returns the filter of records that have each word of a text.
func wordsFilter(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = format.QuotedFilterValue(word)
	}
	return strings.Join(words, " ")
}

func newSearchMatch(m api.SearchMatch, path string) searchMatch {
	out := searchMatch{Name: m.Name, Path: path + m.ID, Detail: m.Detail, State: m.State}
	if out.Name == "" {
		out.Name = format.ShortID(m.ID)
	}
	if m.Match.Field != "name" && m.Match.Field != "id" && m.Match.Text != "" {
		out.Detail = strings.TrimSpace(m.Match.Field + " " + m.Match.Text + " " + out.Detail)
	}
	return out
}

// areaLinks are the pages of the navigation.
func areaLinks() (links []command) {
	for _, item := range navItems {
		links = append(links, command{link: link{"Go to " + item.Name, item.Path}})
	}
	return links
}
