package portal

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// rowsPerPage is the rows per page: two screens, chosen with the cost of refreshing such a page in
// mind.
const rowsPerPage = 50

// column is a column of a table.
type column struct {
	ID           string // that it is chosen by; "": it is always shown
	Name         string
	Field        string // that it is sorted by; "": it cannot be
	Numeric      bool
	HideOnNarrow bool // hidden on narrow screens
	MostFirst    bool // the first click shows the greatest number first
	IsExtra      bool // it is not shown unless it was chosen

	Shown  bool
	Path   string // that sorts by it
	Sorted string // ascending or descending; "": the table is sorted by another one
}

// chip is a filter that a click sets or takes away.
type chip struct {
	Name, Path string
	State      string // whose icon it has; "": none
	HasCount   bool
	Count      int
	Selected   bool
}

// pager is the part of a table that is shown.
type pager struct {
	From, To, Total int
	Before, After   string // paths; "": there is nothing
	IsNeeded        bool
}

// tableQuery is the query in the address of a table: which rows, in which order.
type tableQuery struct {
	path, filter, sort string
	page               int // from 1
}

func (v *visit) tableQuery(usualSort string) tableQuery {
	page, err := strconv.Atoi(v.query.Get("page"))
	if err != nil || page < 1 || page > 1<<20 {
		page = 1
	}
	a := tableQuery{
		path: v.request.URL.Path, filter: strings.TrimSpace(v.query.Get("q")), sort: v.query.Get("sort"),
		page: page,
	}
	if a.sort == "" {
		a.sort = usualSort
	}
	return a
}

func (a tableQuery) pageOptions() client.PageOptions {
	return client.PageOptions{Filter: a.filter, Sort: a.sort, Skip: (a.page - 1) * rowsPerPage, Limit: rowsPerPage}
}

// clampPage reports whether the requested page is behind the end of a table, which may have become
// shorter since then; it then selects the last page.
func (a *tableQuery) clampPage(rows, total int) bool {
	if rows > 0 || total == 0 {
		return false
	}
	a.page = (total-1)/rowsPerPage + 1
	return true
}

// pathWith returns the address of another part of the table.
func (a tableQuery) pathWith(filter, sort string, page int) string {
	q := url.Values{}
	if filter != "" {
		q.Set("q", filter)
	}
	if sort != "" {
		q.Set("sort", sort)
	}
	if page > 1 {
		q.Set("page", strconv.Itoa(page))
	}
	if len(q) == 0 {
		return a.path
	}
	return a.path + "?" + q.Encode()
}

// columns fills in where the heads of a table lead.
func (a tableQuery) columns(all []column) []column {
	all = slices.Clone(all)
	by, down := strings.CutPrefix(a.sort, "-")
	for i, c := range all {
		if c.Field == "" {
			continue
		}
		next := c.Field
		if c.MostFirst {
			next = "-" + c.Field
		}
		if c.Field == by && down {
			all[i].Sorted, next = "descending", c.Field
		} else if c.Field == by {
			all[i].Sorted, next = "ascending", "-"+c.Field
		}
		all[i].Path = a.pathWith(a.filter, next, 1)
	}
	return all
}

// pageRows returns the requested rows.
func pageRows[T any](a *tableQuery, all []T) []T {
	from := min((a.page-1)*rowsPerPage, len(all))
	if a.clampPage(len(all)-from, len(all)) {
		from = (a.page - 1) * rowsPerPage
	}
	return all[from:min(from+rowsPerPage, len(all))]
}

func (a tableQuery) pager(rows, total int) pager {
	first := (a.page - 1) * rowsPerPage
	p := pager{From: first + 1, To: first + rows, Total: total, IsNeeded: total > rows}
	if a.page > 1 {
		p.Before = a.pathWith(a.filter, a.sort, a.page-1)
	}
	if first+rows < total {
		p.After = a.pathWith(a.filter, a.sort, a.page+1)
	}
	return p
}

// chips returns a chip for each state with rows, or named in the filter.
func (a tableQuery) chips(states map[string]int, order []string) (chips []chip) {
	rest, chosen := cutStateTerm(a.filter)
	for _, name := range order {
		on := slices.ContainsFunc(chosen, func(s string) bool { return strings.EqualFold(s, name) })
		if states[name] == 0 && !on {
			continue
		}
		var now []string
		for _, s := range chosen {
			if !strings.EqualFold(s, name) {
				now = append(now, format.FilterValue(s))
			}
		}
		if !on {
			now = append(now, format.FilterValue(strings.ToLower(name)))
		}
		filter := rest
		if len(now) > 0 {
			filter = strings.TrimSpace("state:" + strings.Join(now, ",") + " " + rest)
		}
		chips = append(chips, chip{
			Name: name, State: name, HasCount: true, Count: states[name], Selected: on,
			Path: a.pathWith(filter, a.sort, 1),
		})
	}
	return chips
}

// cutStateTerm removes the first plain term about states from a filter.
func cutStateTerm(filter string) (rest string, states []string) {
	terms := splitUnquoted(filter, ' ')
	for i, term := range terms {
		list, ok := strings.CutPrefix(term, "state:")
		if !ok || strings.Contains(list, "*") {
			continue
		}
		for _, name := range splitUnquoted(list, ',') {
			states = append(states, strings.Trim(name, `"`))
		}
		return strings.Join(slices.Delete(terms, i, i+1), " "), states
	}
	return filter, nil
}

// splitUnquoted splits a text at separators that are not in quotes, and leaves out empty parts.
func splitUnquoted(text string, separator rune) []string {
	within := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			within = !within
		}
		return r == separator && !within
	})
}
